"""Records that the broker writes anew."""

from dataclasses import replace

import pytest

from ternmq_broker.storage.internal_record import (
    InternalRecord,
    batches_of,
    encode_internal,
    internal_record_of,
)
from ternmq_model.errors import IllegalMessage, IllegalName
from ternmq_model.properties import tag_code
from ternmq_model.record.checksum import RESERVED_CHECKSUM
from ternmq_model.record.format import (
    FLAG_BORN_HOST_V6,
    FLAG_COMMIT,
    FLAG_COMPRESSED,
    Record,
    decode_record,
)
from tests.support.records import BORN_HOST, STORE_HOST, batch_of, record

V6_HOST = bytes(range(16)) + (1).to_bytes(4, "big")
PLAIN = InternalRecord(
    topic="flights",
    queue_id=3,
    body=b"body",
    properties={"TAGS": "late", "KEYS": "a b"},
    born_at_ms=1_700_000_000_000,
    born_host=BORN_HOST,
)


def decoded(data: bytes) -> Record:
    found = decode_record(data)
    assert found is not None
    return found


def encoded(record: InternalRecord, *, is_checksummed: bool = False) -> bytes:
    return encode_internal(record, store_host=STORE_HOST, is_checksummed=is_checksummed)


def test_record_is_rewritten_unchanged_but_for_its_checksum() -> None:
    data = record(
        "flights",
        2,
        properties={"TAGS": "late", "UNIQ_KEY": "1"},
        sys_flag=FLAG_COMPRESSED | FLAG_COMMIT,
        reconsume_times=3,
        prepared_offset=77,
        suffix=RESERVED_CHECKSUM,
    )
    inner = internal_record_of(decoded(data))
    assert inner.properties == {"TAGS": "late", "UNIQ_KEY": "1"}
    assert encoded(inner, is_checksummed=True) == data
    assert encoded(inner) != data


def test_host_flags_follow_the_hosts() -> None:
    old = decoded(record(born_host=V6_HOST))
    inner = internal_record_of(old)
    assert inner.sys_flag == 0
    assert decoded(encoded(inner)).header.sys_flag == FLAG_BORN_HOST_V6
    assert decoded(encoded(replace(inner, born_host=BORN_HOST))).header.sys_flag == 0


def test_encoded_batch_equals_checking_the_same_bytes() -> None:
    records = [PLAIN, replace(PLAIN, topic="trains", queue_id=0), replace(PLAIN, properties={})]
    (batch,) = batches_of(records, store_host=STORE_HOST, is_checksummed=True)
    checked = batch_of(
        *(encoded(each, is_checksummed=True) for each in records), is_checksummed=True
    )
    assert batch.data == checked.data
    assert batch.starts.tolist() == checked.starts.tolist()
    assert batch.properties.tolist() == checked.properties.tolist()
    assert batch.tag_codes.tolist() == [tag_code("late"), tag_code("late"), 0]
    assert (batch.headers == checked.headers).all()
    assert [(q.topic, q.queue_id, q.rows.tolist()) for q in batch.queues] == [
        (q.topic, q.queue_id, q.rows.tolist()) for q in checked.queues
    ]


def test_hosts_of_two_lengths_make_two_batches_in_order() -> None:
    other = replace(PLAIN, born_host=V6_HOST)
    batches = batches_of([PLAIN, PLAIN, other, PLAIN], store_host=STORE_HOST, is_checksummed=False)
    assert [len(batch) for batch in batches] == [2, 1, 1]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"properties": {"long": "x" * 32_760}}, IllegalMessage),
        ({"body": bytes((4 << 20) + 1)}, IllegalMessage),
        ({"queue_id": -1}, IllegalMessage),
        ({"topic": "%RETRY%" + "g" * 121}, IllegalMessage),
        ({"topic": "../x"}, IllegalName),
        ({"topic": ""}, IllegalName),
    ],
)
def test_unencodable_record_is_refused(changes: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        encoded(replace(PLAIN, **changes), is_checksummed=True)  # type: ignore[arg-type]
