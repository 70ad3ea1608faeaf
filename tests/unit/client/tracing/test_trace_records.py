import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_client.message_kind import MessageKind
from ternmq_client.tracing.trace_records import (
    ConsumeBegan,
    ConsumeEnded,
    MessageSent,
    TraceRecord,
    TransactionEnded,
    decode,
    encode,
)

SENT = MessageSent(
    at_ms=1_700_000_000_000,
    region="DefaultRegion",
    group="P",
    topic="T",
    message_id="7F00000100002A139A8A7D0A00000000",
    tags="blue",
    keys="k1 k2",
    store_host="127.0.0.1:10911",
    body_length=11,
    took_ms=3,
    kind=MessageKind.DELAY,
    offset_message_id="7F00000100002A9F0000000000000000",
    is_success=True,
)
BEGAN = ConsumeBegan(
    at_ms=5, region="R", group="G", request_id="Q", message_id="M", retries=2, keys=None
)
ENDED = ConsumeEnded(
    request_id="Q",
    message_id="M",
    took_ms=7,
    is_success=False,
    keys="k",
    code=4,
    at_ms=12,
    group="G",
)
TRANSACTION = TransactionEnded(
    at_ms=9,
    region="R",
    group="P",
    topic="T",
    message_id="M",
    tags=None,
    keys="k",
    store_host="127.0.0.1:10911",
    kind=MessageKind.TRANSACTION_COMMIT,
    transaction_id="X",
    state="COMMIT_MESSAGE",
    is_from_check=True,
)
A, B = "\x01", "\x02"
TEXTS = [
    (
        SENT,
        f"Pub{A}1700000000000{A}DefaultRegion{A}P{A}T{A}7F00000100002A139A8A7D0A00000000{A}blue{A}"
        f"k1 k2{A}127.0.0.1:10911{A}11{A}3{A}3{A}7F00000100002A9F0000000000000000{A}true{B}",
    ),
    (BEGAN, f"SubBefore{A}5{A}R{A}G{A}Q{A}M{A}2{A}null{B}"),
    (ENDED, f"SubAfter{A}Q{A}M{A}7{A}false{A}k{A}4{A}12{A}G{B}"),
    (
        TRANSACTION,
        f"EndTransaction{A}9{A}R{A}P{A}T{A}M{A}null{A}k{A}127.0.0.1:10911{A}2{A}X{A}"
        f"COMMIT_MESSAGE{A}true{B}",
    ),
]


@pytest.mark.parametrize(("record", "text"), TEXTS, ids=lambda value: type(value).__name__)
def test_each_kind_of_trace_has_rocketmqs_text(record: TraceRecord, text: str) -> None:
    assert encode(record) == text
    assert list(decode(text)) == [record]


def test_body_holds_many_records() -> None:
    body = "".join(text for _, text in TEXTS)
    assert list(decode(body)) == [record for record, _ in TEXTS]


def test_unreadable_traces_are_skipped() -> None:
    body = f"Recall{A}1{B}Pub{A}yesterday{B}{encode(BEGAN)}rubbish"
    assert list(decode(body)) == [BEGAN]


def test_trace_of_an_older_client_may_end_early() -> None:
    (record,) = decode(f"SubAfter{A}Q{A}M{A}7{A}true{A}k{A}0{B}")
    assert record == ConsumeEnded(
        request_id="Q",
        message_id="M",
        took_ms=7,
        is_success=True,
        keys="k",
        code=0,
        at_ms=0,
        group="",
    )


@given(text=st.text(), number=st.integers(0, 1 << 62), kind=st.sampled_from(MessageKind))
def test_every_trace_survives_the_round_trip(text: str, number: int, kind: MessageKind) -> None:
    clean = text.replace(A, " ").replace(B, " ")
    record = MessageSent(
        at_ms=number,
        region=text,
        group=text,
        topic=text,
        message_id=text,
        tags=text,
        keys=None,
        store_host=text,
        body_length=number,
        took_ms=number,
        kind=kind,
        offset_message_id=text,
        is_success=False,
    )
    (again,) = decode(encode(record))
    assert isinstance(again, MessageSent)
    assert (again.topic, again.at_ms, again.kind) == (clean, number, kind)


@given(st.text())
def test_any_text_can_be_parsed(text: str) -> None:
    list(decode(text))
    list(decode(A.join(("Pub", text, text)) + B))
