"""Index files that Apache RocketMQ wrote, and what it would have written."""

import tarfile
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from ternmq_model.index_keys import KeyRows, find_keys, key_hash
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import decode_properties
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.fields import QueueRows
from ternmq_model.record.format import Record, decode_record
from ternmq_model.record.header_arrays import header_type, take_headers
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.index.index_files import IndexFiles
from tests.support.index_queries import query
from tests.support.stores import HandClock

ARCHIVE: Final = Path(__file__).parent / "data" / "rocketmq-store.tar.gz"
LOG_FILE_BYTES: Final = 65_536


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the store."""
    folder = tmp_path_factory.mktemp("rocketmq")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def read_log(root: Path) -> tuple[bytes, list[tuple[int, Record]]]:
    """Return the log and its records with their offsets."""
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    found: list[tuple[int, Record]] = []
    position = 0
    while any(log[position : position + 4]):
        record = decode_record(log, position)
        if record is None:
            position += LOG_FILE_BYTES - position % LOG_FILE_BYTES
        else:
            found.append((position, record))
            position += record.header.total_bytes
    return log, found


def to_batch(log: bytes, records: list[tuple[int, Record]]) -> RecordBatch:
    """Return records of the log as a batch."""
    starts = np.array([offset for offset, _ in records], dtype=np.int64)
    sizes = np.array([record.header.total_bytes for _, record in records], dtype=np.int64)
    lengths = np.array([len(record.properties) for _, record in records], dtype=np.int64)
    topics: dict[str, list[int]] = {}
    for row, (_, record) in enumerate(records):
        topics.setdefault(record.topic.decode(), []).append(row)
    queues = tuple(QueueRows(topic, 0, np.array(rows)) for topic, rows in topics.items())
    headers = take_headers(log, starts, header_type(0))
    return RecordBatch(log, starts, sizes, headers, sizes, queues, starts + sizes - lengths)


@pytest.mark.parametrize("step", [1, 37, 1000])
def test_index_of_a_rocketmq_log_has_the_bytes_rocketmq_wrote(
    root: Path, tmp_path: Path, step: int
) -> None:
    # In the second and third file RocketMQ counts the first entry's time from the end of the file
    # before, here from its own: both are 0 seconds in these, since no gap is that long.
    log, records = read_log(root)
    index = IndexFiles.open(RealFileSystem(), tmp_path, slots=500, entries=400, clock=HandClock())
    for first in range(0, len(records), step):
        batch = to_batch(log, records[first : first + step])
        keys: KeyRows = find_keys(batch)
        times = batch.headers["stored_at_ms"].astype(np.int64)
        index.put(keys, batch.starts, times, PhysicalOffset(int(batch.starts[-1]) + 1))
    index.close()
    ours = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]
    theirs = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert len(theirs) == 3
    assert ours == theirs


def test_rocketmqs_index_answers_for_every_key_of_every_record(root: Path) -> None:
    _, records = read_log(root)
    index = IndexFiles.open(
        RealFileSystem(), root, slots=5_000_000, entries=20_000_000, clock=HandClock()
    )
    assert [info.sizes for info in index.infos()] == [(500, 400)] * 3
    expected: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for offset, record in records:
        pairs = decode_properties(record.properties)
        for key in {pairs.get("UNIQ_KEY", ""), *pairs.get("KEYS", "").split(" ")} - {""}:
            of_key = expected.setdefault((record.topic.decode(), key), [])
            of_key.append((offset, record.header.stored_at_ms))
    assert len(expected) > 800
    for (topic, key), places in expected.items():
        assert key_hash(topic, key) >= 0
        offsets = [offset for offset, _ in places]
        assert query(index, topic, key, 0, 1 << 60, 64) == offsets
        at_ms = places[-1][1]
        assert offsets[-1] in query(index, topic, key, at_ms, at_ms, 64)
    index.close()
