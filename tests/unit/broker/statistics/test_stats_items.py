import pytest

from ternmq_broker.statistics.broker_statistics import BrokerStatistics
from ternmq_broker.statistics.stats_items import NAMES, StatisticsReport, StatsItem
from ternmq_model.offsets import QueueOffset
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadLimits, ReadRequest
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import HandClock, append, open_store

MANY = ReadLimits(1000, 1 << 20)


def told(counted: BrokerStatistics, now_ms: int, **asked: str) -> dict[tuple[str, str], StatsItem]:
    report = StatisticsReport(counted, cluster="C", now_ms=now_ms, **asked)
    found = [item for item in report.items() if item is not None]
    by_key = {(item.name, item.key): item for item in found}
    assert len(by_key) == len(found)
    return by_key


def busy() -> tuple[BrokerStatistics, MessageStore, HandClock]:
    """Two queues of A, one of the broker's own; G has read both of A's, and lost one message."""
    clock = HandClock()
    store = open_store(MemoryFileSystem(), clock=clock, flush_mode=FlushMode.ASYNC)
    counted = BrokerStatistics(started_at_ms=clock.monotonic_ms())
    store.statistics.observer = counted
    append(store, batch_of(record("A"), record("A", 1), record("A", 1)))
    append(store, batch_of(record("OFFSET_MOVED_EVENT")))
    store.dispatch()
    for queue_id in (0, 1):
        store.reads.plan_read(
            ReadRequest(
                topic="A",
                queue_id=queue_id,
                offset=QueueOffset(0),
                hot=MANY,
                cold=MANY,
                group="G",
            )
        )
    counted.sent_back_by("G", "A")
    counted.died("G", "A")
    return counted, store, clock


def test_every_statistics_name_has_its_keys() -> None:
    counted, _, clock = busy()
    found = told(counted, clock.monotonic_ms() + 2000)
    totals = {f"{name} {key}": item.total for (name, key), item in found.items()}
    assert totals | {"QUEUE_PUT_NUMS A@0": 1, "QUEUE_PUT_NUMS A@1": 2} == totals
    assert totals | {"TOPIC_PUT_NUMS A": 3, "TOPIC_PUT_NUMS OFFSET_MOVED_EVENT": 1} == totals
    assert totals | {"QUEUE_GET_NUMS A@1@G": 2, "GROUP_GET_NUMS A@G": 3} == totals
    assert totals | {"BROKER_PUT_NUMS C": 4, "BROKER_GET_NUMS C": 3} == totals
    assert totals["BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC C"] == 3
    assert totals["BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC C"] == 3
    assert totals | {"SNDBCK_PUT_NUMS A@G": 1, "DLQ_PUT_NUMS A@G": 1} == totals
    assert totals | {"GROUP_GET_FALL_SIZE A@G": 0, "GROUP_GET_FALL_TIME A@G": 0} == totals
    assert totals["TOPIC_PUT_SIZE A"] == totals["GROUP_GET_SIZE A@G"] > 0
    assert {name for name, _ in found} == NAMES


def test_rates_are_per_second_and_averages_per_call() -> None:
    counted, _, clock = busy()
    item = told(counted, clock.monotonic_ms() + 2000)["QUEUE_PUT_NUMS", "A@1"]
    assert [tuple(span) for span in item.spans] == [(2.0, 2, 1.0, 2.0)] * 3


def test_counter_without_time_or_calls_divides_by_nothing() -> None:
    counted = BrokerStatistics(started_at_ms=5)
    item = told(counted, 5)["BROKER_PUT_NUMS", "C"]
    assert [tuple(span) for span in item.spans] == [(0.0, 0, 0.0, 0.0)] * 3


@pytest.mark.parametrize(
    ("asked", "names", "keys"),
    [
        ({"name": "TOPIC_PUT_NUMS"}, {"TOPIC_PUT_NUMS"}, {"A", "OFFSET_MOVED_EVENT"}),
        ({"key": "A@0"}, {"QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE"}, {"A@0"}),
        ({"name": "GROUP_GET_FALL_TIME", "key": "A@G"}, {"GROUP_GET_FALL_TIME"}, {"A@G"}),
        ({"name": "GROUP_GET_NUMS", "key": "B@G"}, set[str](), set[str]()),
    ],
)
def test_statistics_can_be_selected_by_name_or_key(
    asked: dict[str, str], names: set[str], keys: set[str]
) -> None:
    counted, _, clock = busy()
    found = told(counted, clock.monotonic_ms(), **asked)
    assert {name for name, _ in found} == names
    assert {key for _, key in found} == keys
