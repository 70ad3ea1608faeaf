"""Metrics of messages that wait for their time, and of transactions."""

from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.metrics.families import (
    CHECKS,
    COMMITS,
    DELAY_LATENCY,
    DISK_VALUES,
    FINISH_LATENCY,
    HALF_MESSAGES,
    ROLLBACKS,
    TIMER_DEQUEUE_LAG,
    TIMER_DEQUEUE_LATENCY,
    TIMER_ENQUEUE_LAG,
    TIMER_ENQUEUE_LATENCY,
    TIMER_SNAPSHOT,
    TIMING_MESSAGES,
)
from ternmq_broker.scheduled.assembly import ScheduledAssembly
from ternmq_broker.transactions.assembly import Transactions
from ternmq_model.delay import DELAY_LEVEL_MAX
from ternmq_model.names import SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import QueueOffset
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

SNAPSHOT_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Times of RocketMQ's `timer_message_snapshot`."""


async def collect_scheduled(
    scrape: Scrape, node: LabelValues, env: BrokerEnvironment, scheduled: ScheduledAssembly
) -> None:
    """Add the counts of delayed and timed messages.

    Raises:
        RefusedError: The disk cannot be read.
    """
    delays, timer, values = scheduled.delays, scheduled.timer, (*node, *DISK_VALUES)
    delayed = sum(delays.waiting(level) for level in range(1, DELAY_LEVEL_MAX + 1))
    scrape.add(TIMING_MESSAGES, (*values, SCHEDULE_TOPIC), delayed)
    scrape.add(TIMING_MESSAGES, (*values, WHEEL_TOPIC), timer.waiting + timer.behind)
    due, *within = timer.due_counts([0, *(each_s * 1000 for each_s in SNAPSHOT_S)])
    before = 0
    for bound_s, count in zip(SNAPSHOT_S, within, strict=True):
        scrape.add(TIMER_SNAPSHOT, (*values, str(bound_s)), count - before)
        before = count
    now_ms = env.clock.wall_ms()
    scrape.add(TIMER_DEQUEUE_LAG, values, due)
    # Without due messages `first_ms` may be the start of a bucket, before the first of them.
    scrape.add(TIMER_DEQUEUE_LATENCY, values, max(0, now_ms - timer.first_ms) if due else 0)
    scrape.add(TIMER_ENQUEUE_LAG, values, timer.behind)
    scrape.add(TIMER_ENQUEUE_LATENCY, values, await _unread_ms(env, timer.next_offset))
    for topic, counts in list(env.statistics.delays.items()):
        scrape.add_histogram(DELAY_LATENCY, (*values, topic), counts.values())
        await scrape.rest()


async def _unread_ms(env: BrokerEnvironment, offset: QueueOffset) -> int:
    """Return the age of a timed message that is not in the wheel yet; 0 without one."""
    first, end = env.store.queue_range(WHEEL_TOPIC, 0)
    begin = QueueOffset(max(offset, first))
    if begin >= end:
        return 0
    search = env.store.searches.times_at([(WHEEL_TOPIC, 0, (begin,))])
    ((stored_at_ms, *_), *_) = await env.reader.run(search.run)
    return max(0, env.clock.wall_ms() - stored_at_ms) if stored_at_ms else 0


async def collect_transactions(
    scrape: Scrape, node: LabelValues, transactions: Transactions
) -> None:
    """Add the counts of open and ended transactions, and of check-backs."""
    for topic, count in list(transactions.table.open_topics.items()):
        scrape.add(HALF_MESSAGES, (*node, topic), count)
    for topic, ends in list(transactions.ends.items()):
        scrape.add(COMMITS, (*node, topic), ends.committed)
        scrape.add(ROLLBACKS, (*node, topic), ends.rolled_back)
        scrape.add_histogram(FINISH_LATENCY, (*node, topic), ends.latencies.values())
        await scrape.rest()
    for topic, asked in list(transactions.checker.counts.topics.items()):
        scrape.add(CHECKS, (*node, topic), asked)
        await scrape.rest()
