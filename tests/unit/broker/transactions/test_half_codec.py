import pytest

from ternmq_broker.storage.internal_record import (
    InternalRecord,
    encode_internal,
    internal_record_of,
)
from ternmq_broker.transactions.half_codec import (
    HalfRecord,
    copy_of,
    message_of,
    parked_of,
    read_half,
)
from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.format import Record, decode_record

STORED_MS = 2_000_000
HOST = bytes(8)
PROPERTIES = {
    "UNIQ_KEY": "k1",
    "TRAN_MSG": "true",
    "PGROUP": "payers",
    "__transactionId__": "k1",
    "REAL_TOPIC": "flights",
    "REAL_QID": "3",
}


def inner(
    properties: dict[str, str] | None = None, *, prepared: int = 0, topic: str = HALF_TOPIC
) -> InternalRecord:
    return InternalRecord(
        topic=topic,
        queue_id=0,
        body=b"body",
        properties=PROPERTIES | (properties or {}),
        born_at_ms=1_000_000,
        born_host=HOST,
        prepared_offset=prepared,
    )


def stored(record: InternalRecord, *, at: int = 5000, number: int = 9) -> Record:
    data = encode_internal(record, store_host=HOST, is_checksummed=False)
    found = decode_record(data)
    assert found is not None
    header = found.header._replace(
        physical_offset=PhysicalOffset(at),
        queue_offset=QueueOffset(number),
        stored_at_ms=STORED_MS,
    )
    return found._replace(header=header)


def read(record: InternalRecord, *, at: int = 5000, number: int = 9) -> HalfRecord | None:
    places = {QueueOffset(2): PhysicalOffset(700)}
    return read_half(stored(record, at=at, number=number), place_of=places.get)


def test_first_half_is_its_own_transaction_by_the_brokers_clock() -> None:
    half = read(inner({"TRAN_BEGAN_MS": "5", "CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}))
    assert half is not None
    assert (half.transaction, half.first_queue_offset) == (5000, 9)
    assert (half.group, half.message_id, half.topic, half.queue_id) == (
        "payers",
        "k1",
        "flights",
        3,
    )
    assert (half.checks, half.immunity_ms, half.began_at_ms) == (0, 9000, STORED_MS)


@pytest.mark.parametrize(
    ("properties", "prepared", "transaction", "began_at_ms"),
    [
        ({"TRAN_PREPARED_QUEUE_OFFSET": "1", "TRAN_BEGAN_MS": "77"}, 400, 400, 77),
        ({"TRAN_PREPARED_QUEUE_OFFSET": "1", "TRAN_BEGAN_MS": "77"}, 0, 0, 77),
        ({"TRAN_PREPARED_QUEUE_OFFSET": "2"}, 0, 700, 1_000_000),
        ({"TRAN_PREPARED_QUEUE_OFFSET": "1"}, 0, 5000, STORED_MS),
        ({"TRANSACTION_CHECK_TIMES": "4"}, 0, 5000, 1_000_000),
        ({"TRAN_PREPARED_QUEUE_OFFSET": "99"}, 0, 5000, STORED_MS),
        ({"TRAN_PREPARED_QUEUE_OFFSET": "x"}, 0, 5000, STORED_MS),
    ],
)
def test_copies_of_either_broker_name_their_transaction(
    properties: dict[str, str], prepared: int, transaction: int, began_at_ms: int
) -> None:
    half = read(inner(properties, prepared=prepared))
    assert half is not None
    assert (half.transaction, half.began_at_ms) == (transaction, began_at_ms)


@pytest.mark.parametrize(
    "record",
    [inner(topic="flights"), inner({"REAL_TOPIC": ""}), inner({"REAL_QID": "-1"})],
)
def test_malformed_half_message_is_not_parsed(record: InternalRecord) -> None:
    properties = {name: value for name, value in record.properties.items() if value}
    changed = InternalRecord(
        topic=record.topic,
        queue_id=0,
        body=b"",
        properties=properties,
        born_at_ms=0,
        born_host=HOST,
    )
    assert read(changed) is None


def test_copy_of_a_copy_becomes_the_message_that_was_sent() -> None:
    first = inner({"KEYS": "a", "DELAY": "3"})
    half = read(first)
    assert half is not None
    copy = copy_of(first, half, checks=1)
    again = read(copy, at=9000, number=20)
    assert again is not None
    assert (again.transaction, again.first_queue_offset, again.checks) == (5000, 9, 1)
    assert again.began_at_ms == STORED_MS
    twice = copy_of(internal_record_of(stored(copy)), again, checks=2)
    message = message_of(twice, again, queue_id=3)
    assert message.topic == "flights"
    assert message.queue_id == 3
    assert message.sys_flag == 0x8
    assert message.prepared_offset == 5000
    assert message.properties == PROPERTIES | {"KEYS": "a"}
    parked = parked_of(twice, again)
    assert (parked.topic, parked.prepared_offset) == (CHECK_MAX_TOPIC, 5000)


STAGED = {"TERNMQ_STAGED_FOR": "q/7", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}


def test_staged_half_keeps_its_delay_for_its_message() -> None:
    plain = read(inner(STAGED))
    assert plain is not None
    assert (plain.staged_for, plain.is_delayed, plain.immunity_ms) == ("q/7", False, 60_000)
    record = inner(STAGED | {"DELAY": "3"})
    late = read(record)
    assert late is not None
    assert late.is_delayed
    assert message_of(record, late, queue_id=3).properties == record.properties
    ordinary = inner({"DELAY": "3"})
    half = read(ordinary)
    assert half is not None
    assert (half.staged_for, half.is_delayed) == ("", False)
    assert "DELAY" not in message_of(ordinary, half, queue_id=3).properties
