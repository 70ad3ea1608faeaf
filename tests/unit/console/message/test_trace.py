from ternmq_client.message_kind import MessageKind
from ternmq_client.tracing.trace_records import (
    ConsumeBegan,
    ConsumeEnded,
    MessageSent,
    TraceRecord,
)
from ternmq_console.message.trace import timeline

SENT = MessageSent(
    at_ms=1_000,
    region="R",
    group="P",
    topic="T",
    message_id="M",
    tags=None,
    keys="k",
    store_host="10.0.0.1:10911",
    body_length=4,
    took_ms=2,
    kind=MessageKind.NORMAL,
    offset_message_id="O",
    is_success=True,
)


def began(call: str, at_ms: int, retries: int = 0) -> ConsumeBegan:
    return ConsumeBegan(
        at_ms=at_ms,
        region="R",
        group="G",
        request_id=call,
        message_id="M",
        retries=retries,
        keys=None,
    )


def ended(call: str, at_ms: int, code: int) -> ConsumeEnded:
    return ConsumeEnded(
        request_id=call,
        message_id="M",
        took_ms=5,
        is_success=not code,
        keys=None,
        code=code,
        at_ms=at_ms,
        group="G",
    )


def test_timeline_has_a_row_for_the_send_and_for_each_call() -> None:
    traces: list[tuple[str, TraceRecord]] = [
        ("10.0.0.2:1", SENT),
        ("10.0.0.3:1", began("1", 1_100)),
        ("10.0.0.3:1", ended("1", 1_105, 2)),
        ("10.0.0.4:1", began("2", 11_100, retries=1)),
        ("10.0.0.4:1", ended("2", 11_105, 0)),
        ("10.0.0.5:1", began("3", 20_000)),
    ]
    rows = timeline(traces)
    assert [(row["event"], row["outcome"], row["group"]) for row in rows] == [
        ("sent", "ok", "P"),
        ("consumed", "raised", "G"),
        ("consumed", "ok", "G"),
        ("consuming", "not ended", "G"),
    ]
    assert [row["time"] for row in rows][:2] == [
        "1970-01-01T00:00:01.000Z",
        "1970-01-01T00:00:01.105Z",
    ]
    assert rows[2]["details"] == {"retries": 1}
    assert rows[0]["client"] == "10.0.0.2:1"
