"""Environment of real processes: system clock, gRPC, unseeded randomness, threads for files."""

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Final

from ternmq_model.errors import UsageError
from ternmq_remoting.environment import (
    Environment,
    EnvironmentSource,
    EnvironmentUser,
    Safeguards,
)
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.tls import ClientAuth, Credentials, TlsConfig
from ternmq_runtime.blocking_pool import BlockingPool
from ternmq_runtime.clock import SystemClock
from ternmq_runtime.processes import PythonProcesses

logger = logging.getLogger(__name__)

_LAST_EVENTS_S: Final = 0.05


@asynccontextmanager
async def system_environment(
    *,
    config: NetworkConfig | None = None,
    tls: TlsConfig | None = None,
    credentials: Credentials | None = None,
    calls_wait_s: float | None = None,
) -> AsyncGenerator[Environment]:
    """Yield the environment of this process while the block runs.

    Leaving waits for running blocking calls, so services must be closed before.

    Args:
        config: Settings of the ports of the process's servers; None = the defaults.
        tls: TLS of the process's servers; None = none.
        credentials: Credentials of the process's connections; None = those of the variable
            TERNMQ_CREDENTIALS_FILE, completed by `tls`.
        calls_wait_s: Longest wait for blocking calls, s; None = until they return. See
            `BlockingPool.close`.

    Raises:
        ClosedError: This process was forked from one that had used gRPC.
        ConfigError: The credentials of the variable cannot be used.
    """
    if credentials is None:
        given = Credentials.from_environment()
        credentials = given if tls is None else tls.own_credentials(given)
    # Help and completion of the console import clients and must not wait for the import of gRPC.
    from ternmq_remoting.grpc_network import GrpcNetwork

    GrpcNetwork.check_process()
    blocking = BlockingPool()
    try:
        yield Environment(
            clock=SystemClock(),
            network=GrpcNetwork(config=config, tls=tls, credentials=credentials),
            random=Random(),
            blocking=blocking,
            processes=PythonProcesses(),
            safeguards=Safeguards(
                has_identity=credentials.has_identity,
                has_tls=tls is not None and tls.cert is not None,
                asks_clients=tls is not None and tls.client_auth is ClientAuth.REQUIRED,
                accepts_insecure=config is not None and config.insecure,
            ),
        )
    finally:
        try:
            await _let_grpc_finish()
        finally:
            if abandoned := await blocking.close(wait_s=calls_wait_s):
                logger.warning(
                    "blocking calls continue after their service ended functions=%s", abandoned
                )


_installed: list[EnvironmentSource] = []
_outside: dict[EnvironmentUser, None] = {}
"""Open clients with the environment of this process. Threads add and remove their own."""

_DISOWNED: Final = (
    "the client was opened before the cluster of the test was installed, and reaches another one: "
    "open it inside `installed()`"
)


@contextmanager
def clients_installed(source: EnvironmentSource) -> Generator[None]:
    """Give the environments of `source` to all clients that this process opens in the block.

    Clients that are open already may not be used in the block. A warning says so: a consumer among
    them goes on with its own cluster.

    Raises:
        UsageError: Another block does so.
    """
    if _installed:
        raise UsageError("another environment of clients is installed in this process")
    disowned = list(_outside)
    if disowned:
        text = f"open clients of another cluster: {len(disowned)}. A consumer among them goes on"
        warnings.warn(text, RuntimeWarning, stacklevel=5)
    _installed.append(source)
    for client in disowned:
        client.disowned = _DISOWNED
    try:
        yield
    finally:
        _installed.clear()
        for client in disowned:
            client.disowned = ""


@asynccontextmanager
async def client_environment(
    given: Environment | EnvironmentSource | None,
    client: EnvironmentUser,
    credentials: Credentials | None = None,
    *,
    calls_wait_s: float | None = None,
) -> AsyncGenerator[Environment]:
    """Yield the environment of a client while the block runs.

    Args:
        given: Environment, or its source; None = the installed one, else that of this process.
        client: Client, for a source.
        credentials: Credentials of the client where the environment is that of this process; None =
            see `system_environment`.
        calls_wait_s: See `system_environment`.
    """
    if isinstance(given, Environment):
        yield given
        return
    source = given or next(iter(_installed), None)
    if source is not None:
        async with source(client) as env:
            yield env
        return
    async with system_environment(credentials=credentials, calls_wait_s=calls_wait_s) as env:
        _outside[client] = None
        try:
            yield env
        finally:
            del _outside[client]


async def _let_grpc_finish() -> None:
    """Wait until gRPC has delivered its last events to this event loop, before the loop is closed.

    All loops of a process share one queue of gRPC's events. An event for a closed loop raises in
    the loop that takes it from the queue, and delays the events behind it. The last events of calls
    and channels come some milliseconds after their end.
    """
    await asyncio.sleep(_LAST_EVENTS_S)
