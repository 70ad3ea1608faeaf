"""DescribeStatistics: counters of the broker, for operators.

Source: RocketMQ `AdminBrokerProcessor.viewBrokerStatsData`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_broker.statistics.broker_statistics import BrokerStatistics
from ternmq_broker.statistics.stats_items import NAMES, StatisticsReport, StatsItem
from ternmq_model.clock import Clock
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import DESCRIBE_STATISTICS
from ternmq_runtime.service import Job

_YIELD_EVERY: Final = 200
_REPLY_BYTES_MAX: Final = 4 << 20
_ITEM_BYTES: Final = 140
"""Limit on the bytes of an item in a reply besides its name and key."""

_SAMPLES_PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class StatisticsService:
    """Serves DescribeStatistics, and samples the counters. Owns nothing."""

    statistics: BrokerStatistics
    clock: Clock
    cluster: str

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of DescribeStatistics."""
        return (unary(DESCRIBE_STATISTICS, self.describe_statistics),)

    def job(self) -> Job:
        """Return the job that samples the counters."""
        return Job(name="statistics", interval_s=_SAMPLES_PAUSE_S, step=self.step)

    async def step(self) -> bool:
        """Sample some counters; return whether more are due."""
        return self.statistics.sample(self.clock.monotonic_ms())

    async def describe_statistics(
        self, request: admin.DescribeStatisticsRequest, call: Call
    ) -> admin.DescribeStatisticsReply:
        """Return the counters of one name, of one key or all, with their rates."""
        if request.name and request.name not in NAMES:
            remark = f"no counter has the name {request.name!r}; names: {', '.join(sorted(NAMES))}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        report = StatisticsReport(
            self.statistics,
            cluster=self.cluster,
            now_ms=self.clock.monotonic_ms(),
            name=request.name,
            key=request.key,
        )
        found: list[StatsItem] = []
        length = 0
        for number, item in enumerate(report.items()):
            if item is not None:
                found.append(item)
                length += _ITEM_BYTES + len(item.name) + len(item.key)
            if length > _REPLY_BYTES_MAX:
                remark = "the counters do not fit one reply: request one name or key"
                raise refusal(ResponseCode.INVALID_PARAMETER, remark)
            if number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        reply = admin.DescribeStatisticsReply()
        for number, item in enumerate(sorted(found)):
            row = reply.items.add(name=item.name, key=item.key, total=item.total)
            for span in item.spans:
                row.spans.add(**span._asdict())
            if number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return reply
