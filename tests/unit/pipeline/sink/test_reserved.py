from ternmq_client.redriving import SPENT
from ternmq_model.properties import BROKERS_OWN
from ternmq_pipeline.sink.reserved import NOT_OF_USERS, OF_A_LIFE


def test_what_told_of_the_first_sending_is_of_that_life() -> None:
    assert {"UNIQ_KEY", "TRAN_MSG", "__SHARDINGKEY", "SPARK_ROW", "DELAY", "TAGS"} <= NOT_OF_USERS
    assert {"__transactionId__", "RECONSUME_TIME", "CHECK_IMMUNITY_TIME_IN_SECONDS"} <= OF_A_LIFE


def test_nothing_that_a_dead_letter_leaves_behind_is_handed_on() -> None:
    assert SPENT <= OF_A_LIFE
    assert BROKERS_OWN <= OF_A_LIFE
