from ternmq_client.admin.redrive import SPENT
from ternmq_model.properties import BROKERS_OWN
from ternmq_pipeline.sink.reserved_properties import NOT_COPIED, RESERVED_PROPERTIES


def test_properties_of_the_first_sending_are_reserved() -> None:
    assert {
        "UNIQ_KEY",
        "TRAN_MSG",
        "__SHARDINGKEY",
        "SPARK_ROW",
        "DELAY",
        "TAGS",
    } <= RESERVED_PROPERTIES
    assert {"__transactionId__", "RECONSUME_TIME", "CHECK_IMMUNITY_TIME_IN_SECONDS"} <= NOT_COPIED


def test_properties_of_a_dead_letter_are_reserved() -> None:
    assert SPENT <= NOT_COPIED
    assert BROKERS_OWN <= NOT_COPIED
