"""Whatever a client sends: it is refused, or what was hinted is what the log says."""

from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.record.batch import CheckedRecords, check_records
from ternmq_model.record.checksum import RESERVED_CHECKSUM, has_checksum
from ternmq_model.record.fields import tag_code_of
from ternmq_model.record.format import decode_record
from tests.support.records import record, sizes_of

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "DELAY", "TIMEZONE", "TAGSX", "XTAGS"])
VALUES = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9
)
RECORDS = st.builds(
    record,
    topic=st.sampled_from(["A", "B", "Topic", "T" * 127]),
    queue_id=st.integers(0, 3),
    body=st.binary(max_size=40),
    properties=st.dictionaries(NAMES, VALUES, max_size=4),
    suffix=st.sampled_from([b"", RESERVED_CHECKSUM]),
)


def mutate(records: list[bytes], data: st.DataObject) -> None:
    """Change up to three bytes of one record."""
    row = data.draw(st.integers(0, len(records) - 1))
    changed = bytearray(records[row])
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    records[row] = bytes(changed)


def check(records: list[bytes], *, is_checksummed: bool) -> CheckedRecords:
    return check_records(
        b"".join(records),
        sizes_of(records),
        born_host_bytes=8,
        store_host_bytes=8,
        is_checksummed=is_checksummed,
    )


def found_of(checked: CheckedRecords) -> list[tuple[object, ...]]:
    """Return what was found out about each record of a request, in its order."""
    found: dict[int, tuple[object, ...]] = {one.row: (one.remark,) for one in checked.refused}
    batch = checked.batch
    if batch is not None:
        queue_of = {
            row: (queue.topic, queue.queue_id)
            for queue in batch.queues
            for row in queue.rows.tolist()
        }
        for row, index in enumerate(checked.indexes.tolist()):
            start = int(batch.starts[row])
            found[index] = (
                batch.data[start : start + int(batch.sizes[row])],
                batch.headers[row].tolist(),
                int(batch.tag_codes[row]),
                queue_of[row],
                int(batch.properties[row]) - start,
                batch.is_checksummed,
            )
    return [found[index] for index in range(len(found))]


@given(
    records=st.lists(RECORDS, min_size=1, max_size=6), is_checksummed=st.booleans(), data=st.data()
)
def test_records_checked_singly_and_in_batches_agree(
    records: list[bytes], is_checksummed: bool, data: st.DataObject
) -> None:
    mutate(records, data)
    alone = found_of(check(records, is_checksummed=is_checksummed))
    assert found_of(check(records * 8, is_checksummed=is_checksummed)) == alone * 8


@given(
    records=st.lists(RECORDS, min_size=1, max_size=6), is_checksummed=st.booleans(), data=st.data()
)
def test_mutated_record_is_refused_or_its_dispatch_request_agrees_with_a_scan(
    records: list[bytes], is_checksummed: bool, data: st.DataObject
) -> None:
    mutate(records, data)

    checked = check(records, is_checksummed=is_checksummed)

    assert len(checked.refused) + len(checked.indexes) == len(records)
    assert sorted([*checked.indexes.tolist(), *(one.row for one in checked.refused)]) == list(
        range(len(records))
    )
    batch = checked.batch
    if batch is None:
        return
    kept = [records[int(index)] for index in checked.indexes]
    decoded = [one for record in kept if (one := decode_record(record)) is not None]
    if all(has_checksum(one.properties) is is_checksummed for one in decoded):
        assert batch.data == b"".join(kept)
    seen: list[int] = []
    for topic, queue_id, rows in batch.queues:
        for place in rows.tolist():
            scanned = decode_record(batch.data, int(batch.starts[place]))
            assert scanned is not None
            assert (scanned.topic.decode(), scanned.header.queue_id) == (topic, queue_id)
            assert scanned.header.total_bytes == batch.sizes[place]
            assert tag_code_of(scanned.properties) == batch.tag_codes[place]
            assert has_checksum(scanned.properties) is is_checksummed
            seen.append(place)
    assert sorted(seen) == list(range(len(batch)))
