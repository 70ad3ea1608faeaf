from pathlib import Path

import pytest

from ternmq_model.errors import ConfigError, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import SQL92, TAG, Expression
from ternmq_pipeline.options.positions import AtOffsets, AtTime, AtTimes, QueueEnd, TimeStrategy
from ternmq_pipeline.options.sink_options import WRITE_OPTIONS
from ternmq_pipeline.options.source_options import (
    READ_OPTIONS,
    CommitMode,
    PushdownMode,
    ReadOptions,
    ScanMode,
    TriggerLimits,
    View,
    read_options,
)
from ternmq_pipeline.options.topics import Assign, Subscribe, SubscribePattern

A0 = MessageQueue("TopicA", "broker-a", 0)


def read(streaming: bool | None = None, /, **options: str) -> ReadOptions:
    return read_options({"subscribe": "TopicA"} | options, streaming=streaming)


def test_defaults_equal_those_of_kafkas_source() -> None:
    batch = read(False)
    assert (batch.starting, batch.ending) == (QueueEnd.EARLIEST, QueueEnd.LATEST)
    assert read(True).starting is QueueEnd.LATEST
    assert batch.fail_on_data_loss
    assert batch.view is View.TERNMQ
    assert batch.topics == Subscribe(("TopicA",))
    assert (batch.scan, batch.pushdown, batch.arrow) == (ScanMode.AUTO, PushdownMode.NEVER, True)
    assert batch.limits == TriggerLimits(delay_max_ms=900_000)


def test_nameserver_comes_from_the_environment_unless_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERNMQ_NAMESERVER", "there:9")
    assert read().nameservers == ("there:9",)
    assert read(nameserver="one:1; two:2").nameserver == "one:1;two:2"


def test_every_option_is_read() -> None:
    found = read_options(
        {
            "nameserver": "localhost:9876",
            "assign": '{"TopicA":["broker-a:0"]}',
            "view": "kafka",
            "includeHeaders": "true",
            "startingOffsets": '{"TopicA":{"broker-a:0":-2}}',
            "startingOffsetsByTimestampStrategy": "latest",
            "failOnDataLoss": "false",
            "maxOffsetsPerTrigger": "100",
            "maxBytesPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "5m",
            "minPartitions": "7",
            "maxRecordsPerPartition": "50",
            "filter": "amount > 3",
            "filterType": "SQL92",
            "commitGroup": "group",
            "commitMode": "none",
            "pushdown": "true",
            "arrow": "false",
            "scan": "never",
            "batchRows": "5",
            "requestTimeout": "2s",
            "retryTimeout": "1m",
            "includeSystemTopics": "true",
        },
        streaming=True,
    )
    assert found == ReadOptions(
        nameservers=("localhost:9876",),
        topics=Assign((A0,)),
        include_system_topics=True,
        view=View.KAFKA,
        include_headers=True,
        starting=AtOffsets({A0: -2}),
        starting_strategy=TimeStrategy.LATEST,
        fail_on_data_loss=False,
        limits=TriggerLimits(
            offsets_max=100, bytes_max=1_000, offsets_min=10, delay_max_ms=300_000
        ),
        partitions_min=7,
        partition_records_max=50,
        filter=Expression("amount > 3", SQL92),
        commit_group="group",
        commit_mode=CommitMode.NONE,
        pushdown=PushdownMode.ALWAYS,
        arrow=False,
        scan=ScanMode.NEVER,
        batch_rows_max=5,
        request_timeout_s=2.0,
        retry_timeout_s=60.0,
    )


def test_time_option_precedes_times_and_times_precede_offsets() -> None:
    offsets = '{"TopicA":{"broker-a:0":5}}'
    times = '{"TopicA":{"broker-a:0":77}}'
    all_three = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert read(startingTimestamp="9", **all_three).starting == AtTime(9)
    assert read(**all_three).starting == AtTimes({A0: 77})
    assert read(startingOffsets=offsets).starting == AtOffsets({A0: 5})
    ending = {"endingOffsets": offsets, "endingOffsetsByTimestamp": times}
    assert read(endingTimestamp="9", **ending).ending == AtTime(9)
    assert read(**ending).ending == AtTimes({A0: 77})


def test_topics_are_read_once_each_in_order() -> None:
    assert read(subscribe=" TopicB, TopicA,TopicB ").topics == Subscribe(("TopicA", "TopicB"))
    pattern = read_options({"subscribePattern": "Topic[AB]"}).topics
    assert isinstance(pattern, SubscribePattern)
    assert pattern.matches("TopicA")
    assert not pattern.matches("TopicAB")
    assert not pattern.matches("MyTopicA")


def test_store_needs_no_topic() -> None:
    found = read_options({"store": "/data/store"}, streaming=False)
    assert (found.store, found.topics, found.nameservers) == ("/data/store", None, ())
    assert read_options({"store": "/data/store", "raw": "true"}).raw


def test_filter_for_everything_is_none() -> None:
    assert read(filter="*").filter is None
    assert read(filter="TagA || TagB").filter == Expression("TagA || TagB", TAG)
    assert read(filter=" * \n").filter is None


def test_filter_loses_the_blanks_that_a_subscription_loses() -> None:
    assert read(filter=" \u3000a\t").filter == Expression("\u3000a", TAG)
    with pytest.raises(ConfigError, match="must not be empty"):
        read(filter=" \t")


def test_commit_group_is_committed_by_the_stream_by_default() -> None:
    assert read(True, commitGroup="group").commit_mode is CommitMode.SPARK


HOSTILE: list[tuple[dict[str, str], bool | None, str]] = [
    ({}, None, "one of the options subscribe, subscribePattern, assign"),
    ({"subscribe": "A", "subscribePattern": "B"}, None, "subscribe and subscribePattern"),
    ({"subscribe": "../../x"}, None, "subscribe="),
    ({"subscribe": "A,,B"}, None, "subscribe="),
    ({"subscribe": "A,Tö"}, None, "subscribe="),
    ({"subscribe": "A\0B"}, None, "subscribe="),
    ({"subscribe": "x" * 10_000}, None, "subscribe="),
    ({"subscribe": "rmq_sys_wheel_timer"}, None, "includeSystemTopics=true"),
    ({"subscribe": "RMQ_SYS_TRANS_HALF_TOPIC", "includeSystemTopics": "true"}, None, "subscribe="),
    ({"subscribePattern": "("}, None, "subscribePattern="),
    ({"subscribePattern": "*"}, None, "subscribePattern="),
    ({"subscribePattern": "a{99999999999}"}, None, "subscribePattern="),
    ({"subscribePattern": "x" * 1_001}, None, "subscribePattern="),
    ({"assign": "TopicA"}, None, "assign="),
    ({"assign": "{}"}, None, "assign="),
    ({"assign": '{"TopicA":[0]}'}, None, "assign="),
    ({"assign": '{"TopicA":[]}'}, None, "assign="),
    ({"assign": '{"TopicA":{"broker-a:0":1}}'}, None, "assign="),
    ({"assign": '{"../x":["broker-a:0"]}'}, None, "assign="),
    ({"assign": '{"TopicA":["../a:0"]}'}, None, "assign="),
    ({"assign": '{"TopicA":["broker-a:-1"]}'}, None, "assign="),
    ({"assign": '{"TopicA":["broker-a:00"]}'}, None, "assign="),
    ({"assign": '{"TopicA":["broker-a:65536"]}'}, None, "assign="),
    ({"assign": '{"TopicA":["broker-a:0","broker-a:0"]}'}, None, "twice"),
    ({"assign": '{"TopicA":["broker-a:0"],"TopicA":["broker-a:1"]}'}, None, "twice"),
    ({"assign": "[" * 100_000}, None, "assign="),
    ({"subscribe": "A", "path": "/x"}, None, "subscribe"),
    ({"subscribe": "A", "topic": "B"}, None, "subscribe"),
    ({"subscribe": "A", "kafka.bootstrap.servers": "x:1"}, None, "nameserver"),
    ({"subscribe": "A", "startingOffset": "earliest"}, None, "did you mean 'startingOffsets'?"),
    ({"subscribe": "A", "nameserver": "nowhere"}, None, "nameserver="),
    ({"subscribe": "A", "nameserver": ";"}, None, "nameserver="),
    ({"subscribe": "A", "nameserver": "x:99999"}, None, "nameserver="),
    ({"subscribe": "A", "view": "flink"}, None, "view="),
    ({"subscribe": "A", "includeHeaders": "true"}, None, "includeHeaders="),
    ({"subscribe": "A", "startingOffsets": "first"}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": "latest"}, False, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":-3}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":NaN}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":1.5}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":true}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":"1"}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":1e400}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":9223372036854775808}}'}, None, "A@b:0"),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":%s}}' % ("9" * 4_000)}, None, "A@b:0"),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":%s}}' % ("9" * 9_000)}, None, "Offsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{"b:0":1,"b:0":2}}'}, None, "twice"),
    ({"subscribe": "A", "startingOffsets": '{"A":{"0":1}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":1}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"A":{}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": "{}"}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"v":2,"t":{}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"v":1,"t":{},"x":1}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": '{"B":{"b:0":1}}'}, None, "startingOffsets='B'"),
    ({"subscribe": "A", "startingOffsets": '{"\\ud800":{"b:0":1}}'}, None, "startingOffsets="),
    ({"subscribe": "A", "startingOffsets": "{" + " " * (9 << 20) + "}"}, None, "startingOffsets="),
    ({"subscribe": "A", "startingTimestamp": "-1"}, None, "startingTimestamp="),
    ({"subscribe": "A", "startingTimestamp": "yesterday"}, None, "startingTimestamp="),
    ({"subscribe": "A", "startingOffsetsByTimestamp": '{"A":{"b:0":-1}}'}, None, "ByTimestamp="),
    ({"subscribe": "A", "startingOffsetsByTimestamp": "{}"}, None, "ByTimestamp="),
    ({"subscribe": "A", "startingOffsetsByTimestampStrategy": "x"}, None, "Strategy="),
    ({"subscribe": "A", "endingOffsets": "earliest"}, False, "endingOffsets="),
    ({"subscribe": "A", "endingOffsets": '{"A":{"b:0":-2}}'}, False, "endingOffsets="),
    ({"subscribe": "A", "endingOffsets": "latest"}, True, "endingOffsets="),
    ({"subscribe": "A", "endingTimestamp": "1"}, True, "endingTimestamp="),
    ({"subscribe": "A", "startingTimestamp": "2", "endingTimestamp": "1"}, False, "Timestamp=2"),
    ({"subscribe": "A", "failOnDataLoss": "no"}, None, "failOnDataLoss="),
    ({"subscribe": "A", "maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger="),
    ({"subscribe": "A", "maxOffsetsPerTrigger": "5"}, False, "maxOffsetsPerTrigger="),
    ({"subscribe": "A", "maxBytesPerTrigger": "-5"}, True, "maxBytesPerTrigger="),
    ({"subscribe": "A", "maxTriggerDelay": "15m"}, True, "maxTriggerDelay="),
    ({"subscribe": "A", "minOffsetsPerTrigger": "1", "maxTriggerDelay": "x"}, True, "Delay="),
    (
        {"subscribe": "A", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
        True,
        "minOffsetsPerTrigger=",
    ),
    ({"subscribe": "A", "minPartitions": "100001"}, None, "minPartitions="),
    ({"subscribe": "A", "maxRecordsPerPartition": "0"}, None, "maxRecordsPerPartition="),
    ({"subscribe": "A", "filter": "a >", "filterType": "sql92"}, None, "filter="),
    ({"subscribe": "A", "filter": "a", "filterType": "regex"}, None, "filterType="),
    ({"subscribe": "A", "filterType": "tag"}, None, "filterType="),
    ({"subscribe": "A", "commitGroup": "../g"}, True, "commitGroup="),
    ({"subscribe": "A", "commitGroup": "CID_RMQ_SYS_X"}, True, "commitGroup="),
    ({"subscribe": "A", "commitMode": "spark"}, True, "commitMode="),
    ({"subscribe": "A", "pushdown": "maybe"}, None, "pushdown="),
    ({"subscribe": "A", "scan": "always"}, None, "scan="),
    ({"subscribe": "A", "batchRows": "0"}, None, "batchRows="),
    ({"subscribe": "A", "fetchOffset.numRetries": "3"}, None, "numRetries': is retryTimeout now"),
    ({"subscribe": "A", "readTimeout": "60s"}, None, "readTimeout': is retryTimeout now"),
    ({"subscribe": "A", "retryTimeout": "0"}, None, "retryTimeout="),
    ({"subscribe": "A", "requestTimeout": "0"}, None, "requestTimeout="),
    ({"subscribe": "A", "retryTimeout": "nan"}, None, "retryTimeout="),
    ({"subscribe": "A", "raw": "true"}, None, "raw="),
    ({"store": "/x", "raw": "true", "subscribe": "A"}, None, "subscribe="),
    ({"store": "/x", "raw": "true", "view": "kafka"}, None, "view="),
    ({"store": "/x"}, True, "store="),
    ({"store": ""}, None, "store="),
    ({"store": "/x\0"}, None, "store="),
    ({"store": "/x", "nameserver": "a:1"}, None, "nameserver="),
    ({"store": "/x", "raw": "true", "minPartitions": "3"}, None, "minPartitions="),
    ({"store": "/x", "maxRecordsPerPartition": "3"}, None, "maxRecordsPerPartition="),
    ({"store": "/x", "brokerName": "../x"}, None, "brokerName="),
    ({"subscribe": "A", "brokerName": "x"}, None, "brokerName="),
]


@pytest.mark.parametrize(("options", "streaming", "told"), HOSTILE)
def test_hostile_options_are_refused_by_name(
    options: dict[str, str], streaming: bool | None, told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(options, streaming=streaming)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 600


def test_every_option_has_a_test_that_refuses_it() -> None:
    refused = {name for options, _, _ in HOSTILE for name in options}
    others = {"startingOffsetsByTimestampStrategy", "endingOffsetsByTimestamp"}
    missing = set(READ_OPTIONS) - refused - others
    assert missing == {"arrow"}


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "spark.md").read_text()
    assert [name for name in READ_OPTIONS if f"\n| `{name}` |" not in page] == []
    sink = page.partition("## Options of the sink")[2].partition("\n## ")[0]
    assert [name for name in WRITE_OPTIONS if f"\n| `{name}` |" not in sink] == []
