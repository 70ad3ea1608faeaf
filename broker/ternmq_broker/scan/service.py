"""Scan and MeasureQueues: RPCs of data pipelines."""

from collections.abc import Callable, Sequence

from ternmq_broker.config import BrokerConfig
from ternmq_broker.pull.rules import PullRules
from ternmq_broker.scan.holds import ScanHolds
from ternmq_broker.scan.queue_sizes import measure_queues
from ternmq_broker.scan.range_scan import ScanServerStream, ScanServiceContext, serve_range
from ternmq_broker.scan.worker_pool import ScanPool
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.state.topics import TopicTable
from ternmq_model.errors import ConnectionLost
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Handler, stream, unary
from ternmq_remoting.service_methods import MEASURE_QUEUES, SCAN
from ternmq_runtime.service import Job
from ternmq_store.columns.pyarrow_support import has_pyarrow
from ternmq_store.message_store import MessageStore


class ScanService:
    """Serves Scan and MeasureQueues. Owns the processes that scan.

    Args:
        context: Tables and services behind it.
        topics: Which there are.
        env: Blocking calls.
    """

    def __init__(self, context: ScanServiceContext, topics: TopicTable, env: Environment) -> None:
        self._context = context
        self._topics = topics
        self._blocking = env.blocking

    def handlers(self) -> Sequence[Handler]:
        """Return what to serve."""
        return (stream(SCAN, self.scan), unary(MEASURE_QUEUES, self.measure))

    def jobs(self) -> Sequence[Job]:
        """Return what runs beside the handlers."""
        pool = self._context.pool
        return () if pool is None else (pool.job,)

    def drain(self) -> None:
        """End what is being scanned: who asked for it asks again, elsewhere or later."""
        if self._context.pool is not None:
            self._context.pool.drain()

    async def close(self) -> None:
        """See to it that no process is left. For when no handler runs any more."""
        if self._context.pool is not None:
            await self._context.pool.close()

    async def scan(self, stream: ScanServerStream, call: Call) -> None:
        """Serve one reader: range after range."""
        try:
            while (request := await stream.read()) is not None:
                await serve_range(self._context, request, stream)
        except ConnectionLost:
            return

    async def measure(
        self, request: admin.MeasureQueuesRequest, call: Call
    ) -> admin.MeasureQueuesReply:
        """Return the sizes of ranges of queues. Cancelling is safe."""
        return await measure_queues(request, self._context.store, self._topics, self._blocking)


def scan_service(
    config: BrokerConfig,
    env: Environment,
    store: MessageStore,
    topics: TopicTable,
    rules: PullRules,
    deletion_listeners: TopicDeletionListeners,
    *,
    is_slave: bool,
    is_closing: Callable[[], bool],
) -> ScanService:
    """Return the service of scans for one term of a broker.

    Args:
        config: How many processes it may have.
        env: Where they come from, and the clock.
        store: What they read; is told which files they need.
        topics: Which there are.
        rules: What readers may read.
        deletion_listeners: Tells of deleted topics.
        is_slave: The broker follows a master.
        is_closing: Tells whether nobody new is served any more.
    """
    pool: ScanPool | None = None
    if env.processes is not None and config.scan_processes:
        pool = ScanPool(env.processes, env.clock, processes_max=config.scan_processes)
    holds = ScanHolds(env.clock, limit_ms=config.scan_stall_ms)
    store.cleaner.holders.append(holds.needed_from)
    context = ScanServiceContext(
        broker_name=config.name,
        root=str(config.data.absolute()),
        store=store,
        rules=rules,
        deletion_listeners=deletion_listeners,
        holds=holds,
        pool=pool,
        has_arrow=has_pyarrow,
        stall_s=config.scan_stall_ms / 1000,
        is_slave=is_slave,
        is_closing=is_closing,
    )
    return ScanService(context, topics, env)
