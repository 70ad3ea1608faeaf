"""Environment of real processes: system clock, gRPC, unseeded randomness, threads for files."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from ternmq_remoting.environment import Environment
from ternmq_runtime.blocking_pool import BlockingPool
from ternmq_runtime.clock import SystemClock
from ternmq_runtime.processes import PythonProcesses

logger = logging.getLogger(__name__)

_LAST_EVENTS_S: Final = 0.05


@asynccontextmanager
async def system_environment(*, calls_wait_s: float | None = None) -> AsyncGenerator[Environment]:
    """Yield the environment of this process while the block runs.

    Leaving waits for running blocking calls, so services must be closed before.

    Args:
        calls_wait_s: Longest wait for blocking calls, s; None = until they return. See
            `BlockingPool.close`.

    Raises:
        ClosedError: This process was forked from one that had used gRPC.
    """
    # Help and completion of the console import clients and must not wait for the import of gRPC.
    from ternmq_remoting.grpc_network import GrpcNetwork

    GrpcNetwork.check_process()
    blocking = BlockingPool()
    try:
        yield Environment(
            clock=SystemClock(),
            network=GrpcNetwork(),
            random=Random(),
            blocking=blocking,
            processes=PythonProcesses(),
        )
    finally:
        try:
            await _let_grpc_finish()
        finally:
            if abandoned := await blocking.close(wait_s=calls_wait_s):
                logger.warning(
                    "blocking calls continue after their service ended functions=%s", abandoned
                )


async def _let_grpc_finish() -> None:
    """Wait until gRPC has delivered its last events to this event loop, before the loop is closed.

    All loops of a process share one queue of gRPC's events. An event for a closed loop raises in
    the loop that takes it from the queue, and delays the events behind it. The last events of calls
    and channels come some milliseconds after their end.
    """
    await asyncio.sleep(_LAST_EVENTS_S)
