"""The environment of real processes: system clock, gRPC, unseeded randomness, threads for files."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

from ternmq_remoting.environment import Environment
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_runtime.blocking import BlockingPool
from ternmq_runtime.clock import SystemClock


@asynccontextmanager
async def system_environment() -> AsyncGenerator[Environment]:
    """Give the real world while the block runs.

    Leaving it waits for blocking calls that still run, so services must be closed before.
    """
    async with BlockingPool() as blocking:
        yield Environment(
            clock=SystemClock(), network=GrpcNetwork(), random=Random(), blocking=blocking
        )
