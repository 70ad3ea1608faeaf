import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ternmq_model.errors import ConfigError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import read_options
from ternmq_pipeline.source.offline.plan import (
    check_offline,
    clipped,
    plan_parts,
    split_parts,
    times_ms,
)
from ternmq_pipeline.source.pushdown import PushedFilters
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.queues.units import UNIT
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.partition_scan import LogFilePartition
from ternmq_store.scan.scan_spec import ScanRange

PARTS = [
    LogFilePartition(0, (ScanRange("A", 0, 0, 10), ScanRange("B", 1, 5, 6))),
    LogFilePartition(65536, (ScanRange("A", 0, 10, 13),)),
]


def messages(parts: list[LogFilePartition]) -> Counter[tuple[int, str, int, int]]:
    return Counter(
        (part.base, topic, queue_id, offset)
        for part in parts
        for topic, queue_id, begin, end in part.ranges
        for offset in range(begin, end)
    )


@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 8, 100])
def test_split_parts_have_the_same_messages_in_the_same_files(wanted: int) -> None:
    cut = split_parts(PARTS, wanted)
    assert messages(cut) == messages(PARTS)
    assert len(cut) >= min(wanted, 8)
    assert all(part.ranges for part in cut)


def test_empty_plan_splits_into_no_parts() -> None:
    assert split_parts([], 5) == []


def test_parts_keep_the_wanted_share_of_their_ranges() -> None:
    queue = MessageQueue("A", "store", 0)
    wanted = {("A", 0): OffsetRange(queue, QueueOffset(8), QueueOffset(11))}
    assert clipped(PARTS, wanted) == [
        LogFilePartition(0, (ScanRange("A", 0, 8, 10),)),
        LogFilePartition(65536, (ScanRange("A", 0, 10, 11),)),
    ]
    assert clipped(PARTS, {}) == []


def test_time_options_are_read_in_milliseconds() -> None:
    options = {"store": "/x", "startingTimestamp": "5", "endingTimestamp": "9"}
    assert times_ms(read_options(options)) == (5, 9)
    assert times_ms(read_options({"store": "/x"})) == (0, 0)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("subscribe", "A,Nobody", "subscribe='Nobody': is not in the directory "),
        ("subscribe", "%LMQ%x", "subscribe='%LMQ%x': is a light queue"),
        ("assign", '{"Nobody":["store:0"]}', "assign='Nobody': is not in the directory "),
        ("assign", '{"A":["store:0","store:7"]}', "assign='A store:7': is not in the directory "),
    ],
)
def test_topics_and_queues_missing_in_the_directory_are_refused_by_name(
    tmp_path: Path, option: str, value: str, told: str
) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue" / "A" / "0").mkdir(parents=True)
    directory = StoreDirectory(RealFileSystem(), tmp_path)
    assert (
        plan_parts(directory, read_options({"store": "/x", "subscribe": "A"}), PushedFilters())
        == []
    )
    with pytest.raises(ConfigError, match=re.escape(told)):
        plan_parts(directory, read_options({"store": "/x", option: value}), PushedFilters())


def test_pattern_selects_no_light_queue(tmp_path: Path) -> None:
    for topic in ("%LMQ%x", "%LMQ%y", "B"):
        queue = tmp_path / "consumequeue" / topic / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(np.array([(0, 100, 0)], dtype=UNIT).tobytes())
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(1000))
    directory = StoreDirectory(RealFileSystem(), tmp_path)
    for choice in ({"subscribePattern": ".*"}, {}):
        parts = plan_parts(directory, read_options({"store": "/x"} | choice), PushedFilters())
        assert parts == [LogFilePartition(0, (ScanRange("B", 0, 0, 1),))]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("assign", '{"A":["broker-a:0"]}'),
        ("startingOffsetsByTimestamp", '{"A":{"store:0":1}}'),
        ("endingOffsetsByTimestamp", '{"A":{"store:0":1}}'),
    ],
)
def test_options_a_directory_cannot_answer_are_refused_by_name(option: str, value: str) -> None:
    options = read_options({"store": "/x", option: value})
    with pytest.raises(ConfigError, match=option):
        check_offline(options)
