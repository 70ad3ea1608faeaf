import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.sink_options import WriteOptions, write_options, written_topic


def test_write_options_have_their_defaults() -> None:
    assert write_options({"nameserver": "x:1"}) == WriteOptions(nameservers=("x:1",))


def test_every_option_is_read_and_options_added_by_spark_are_ignored() -> None:
    found = write_options(
        {
            "nameserver": "x:1",
            "topic": "TopicA",
            "stagingTimeout": "1h",
            "retryTimeout": "5s",
            "requestTimeout": "1",
            "producerGroup": "mine",
            "telemetry": "otel",
            "checkpointlocation": "/tmp/x",
            "queryname": "q",
        }
    )
    assert found == WriteOptions(
        nameservers=("x:1",),
        topic="TopicA",
        staging_timeout_s=3_600,
        retry_timeout_s=5,
        request_timeout_s=1.0,
        producer_group="mine",
        telemetry=True,
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "../../x"}, "topic="),
        ({"topic": ""}, "topic="),
        ({"topic": "%RETRY%group"}, "topic="),
        ({"topic": "%DLQ%group"}, "topic="),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "topic="),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "topic="),
        ({"stagingTimeout": "0"}, "stagingTimeout="),
        ({"stagingTimeout": "4d"}, "stagingTimeout="),
        ({"stagingTimeout": "1500ms"}, "stagingTimeout='1500ms': must be whole seconds"),
        ({"stagingTimeout": "NaN"}, "stagingTimeout="),
        ({"stagingTimeout": "-3600"}, "stagingTimeout="),
        ({"commitTimeout": "120s"}, "commitTimeout': is retryTimeout now"),
        ({"retryTimeout": "1e9"}, "retryTimeout="),
        ({"requestTimeout": "0"}, "requestTimeout="),
        ({"telemetry": "yes"}, "telemetry='yes': must be otel"),
        ({"producerGroup": "a b"}, "producerGroup="),
        ({"producerGroup": "CID_RMQ_SYS_X"}, "producerGroup="),
        ({"nameserver": "x"}, "nameserver="),
        ({"path": "/x"}, "topic"),
        ({"subscribe": "A"}, "topic"),
        ({"topics": "A"}, "did you mean 'topic'?"),
    ],
)
def test_hostile_options_are_refused_by_name(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        write_options(options)
    assert told in str(caught.value)


def test_row_may_name_only_user_topics() -> None:
    assert written_topic("column topic", "TopicA") == "TopicA"
    with pytest.raises(UsageError, match="only brokers may write"):
        written_topic("column topic", "rmq_sys_x")
