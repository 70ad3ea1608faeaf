"""One record in scalars is refused, stored and dispatched as a batch of one."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.names import is_send_forbidden
from ternmq_model.record.batch import RecordBatch, Records, batch_of, check_records
from ternmq_model.record.checksum import RESERVED_CHECKSUM
from ternmq_model.record.format import host_flags
from ternmq_model.record.property_rules import is_plain
from ternmq_model.record.single import read_single
from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.examples import examples
from tests.support.records import BORN_HOST, STORE_HOST, record, sizes_of
from tests.support.stores import SMALL, drain, open_store, settle

HOST_V6 = bytes(range(16)) + STORE_HOST[4:]
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "DELAY", "TRAN_MSG", "REAL_QID", "XTAGS"])
VALUES = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9
)
HOSTS = st.sampled_from([(BORN_HOST, STORE_HOST), (HOST_V6, STORE_HOST), (BORN_HOST, HOST_V6)])


@st.composite
def encoded(draw: st.DrawFn, born_host: bytes, store_host: bytes) -> bytes:
    """Return a record with up to three changed bytes."""
    built = bytearray(
        record(
            draw(st.sampled_from(["A", "T" * 127, "SCHEDULE_TOPIC_XXXX", "x" * 128])),
            draw(st.integers(0, 3)),
            draw(st.binary(max_size=40)),
            draw(st.dictionaries(NAMES, VALUES, max_size=4)),
            sys_flag=draw(st.sampled_from([0, 0, 1, 4])),
            born_host=born_host,
            store_host=store_host,
            suffix=draw(st.sampled_from([RESERVED_CHECKSUM, b""])),
        )
    )
    for _ in range(draw(st.integers(0, 3)) if draw(st.booleans()) else 0):
        built[draw(st.integers(0, len(built) - 1))] ^= draw(st.integers(1, 255))
    return bytes(built)


def fields_of(batch: RecordBatch) -> list[object]:
    """Return the content of a batch of one record."""
    (queue,) = batch.queues
    return [
        batch.data,
        batch.starts.tolist(),
        batch.sizes.tolist(),
        batch.headers.tolist(),
        batch.tag_codes.tolist(),
        (queue.topic, queue.queue_id, queue.rows.tolist()),
        batch.properties.tolist(),
        batch.is_checksummed,
        batch.routed,
    ]


@given(hosts=HOSTS, is_checksummed=st.booleans(), data=st.data())
def test_single_record_equals_a_batch_of_one(
    hosts: tuple[bytes, bytes], is_checksummed: bool, data: st.DataObject
) -> None:
    sent = data.draw(encoded(*hosts))
    checked = check_records(
        sent,
        sizes_of([sent]),
        born_host_bytes=len(hosts[0]),
        store_host_bytes=len(hosts[1]),
        is_checksummed=is_checksummed,
    )
    flags = host_flags(len(hosts[0]), len(hosts[1]))

    single = read_single(sent, flags, is_checksummed=is_checksummed)

    batch = checked.batch
    if single is not None:
        assert batch is not None
        assert fields_of(batch_of(single)) == fields_of(batch)
    elif batch is not None:
        properties = sent[int(batch.properties[0]) :]
        assert (
            batch.routed
            or batch.data != sent
            or not is_plain(properties.removesuffix(RESERVED_CHECKSUM))
            or is_send_forbidden(batch.queues[0].topic)
        )


@given(prefix=st.integers(0, 400))
def test_cut_record_is_no_single_record(prefix: int) -> None:
    whole = record(body=bytes(300))
    assert (read_single(whole[:prefix], 0, is_checksummed=False) is None) == (prefix < len(whole))


SENT = st.builds(
    record,
    topic=st.sampled_from(["A", "B"]),
    queue_id=st.integers(0, 1),
    body=st.binary(max_size=300),
    properties=st.dictionaries(
        st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a"]), VALUES, max_size=4
    ),
    suffix=st.just(RESERVED_CHECKSUM),
)


def stored(
    records: list[bytes], *, in_scalars: bool, config_name: str, flush_mode: FlushMode
) -> tuple[list[object], dict[Path, bytes]]:
    """Append records one by one; return the results and the bytes of all files."""
    config = replace(
        SMALL,
        record_checksum=config_name != "plain",
        index_enabled=config_name != "no index",
        consume_queue_ext_enabled=config_name == "extended",
        consume_queue_ext_file_bytes=1 << 16,
    )
    files = MemoryFileSystem()
    store = open_store(files, config=config, flush_mode=flush_mode)
    if config_name == "extended":
        store.keep_bit_maps(lambda batch: [bytes([5]) * 4] * len(batch))
    results: list[object] = []
    for number, sent in enumerate(records):
        single = read_single(sent, 0, is_checksummed=True)
        assert single is not None
        batch: Records = single if in_scalars else batch_of(single)
        done = store.append(batch, born_host=BORN_HOST, store_host=STORE_HOST)
        results.append((done.physical_offsets.tolist(), done.queue_offsets.tolist(), done.end))
        if number % 4:  # one record alone, and two
            settle(store)
    settle(store)
    results += [(queue, drain(store, *queue)) for queue in store.queues()]
    results += [store.statistics.put_bytes, dict(store.statistics.topics)]
    store.close()
    return results, {
        path: node.data.tobytes()
        for path, node in files.nodes.items()
        if path.parts[2] in ("commitlog", "consumequeue", "consumequeue_ext", "index")
    }


@settings(max_examples=examples(30))
@given(
    records=st.lists(SENT, min_size=1, max_size=30),
    config_name=st.sampled_from(["checksummed", "plain", "no index", "extended"]),
    flush_mode=st.sampled_from(FlushMode),
)
def test_single_record_is_stored_and_dispatched_as_a_batch_of_one(
    records: list[bytes], config_name: str, flush_mode: FlushMode
) -> None:
    first, second = (
        stored(records, in_scalars=each, config_name=config_name, flush_mode=flush_mode)
        for each in (True, False)
    )
    assert first == second
