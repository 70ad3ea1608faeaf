from ternmq_client.admin.redrive import SPENT
from ternmq_model.properties import BROKERS_OWN
from ternmq_pipeline.sink.reserved_properties import NOT_OF_USERS, OF_A_LIFE


def test_properties_of_the_first_sending_are_reserved() -> None:
    assert {"UNIQ_KEY", "TRAN_MSG", "__SHARDINGKEY", "SPARK_ROW", "DELAY", "TAGS"} <= NOT_OF_USERS
    assert {"__transactionId__", "RECONSUME_TIME", "CHECK_IMMUNITY_TIME_IN_SECONDS"} <= OF_A_LIFE


def test_properties_of_a_dead_letter_are_reserved() -> None:
    assert SPENT <= OF_A_LIFE
    assert BROKERS_OWN <= OF_A_LIFE
