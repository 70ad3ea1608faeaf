"""The environment of a broker's parts: what a term opens before it builds them."""

from collections.abc import Mapping
from dataclasses import dataclass

from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.registration import Registrar
from ternmq_broker.state.tables import Tables
from ternmq_broker.statistics.broker_statistics import BrokerStatistics
from ternmq_broker.steady_clock import SteadyClock
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.reader import StoreReader
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.environment import Environment
from ternmq_store.message_store import MessageStore


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerEnvironment(Environment):
    """Settings, store and tables of one term, besides the environment of the process.

    Built once, by `Term`; every part of the broker gets the same one.
    """

    clock: SteadyClock
    live: LiveSettings
    """Settings of the broker and its store, as they are now."""

    is_slave: bool
    """The broker follows a master."""

    store: MessageStore
    reader: StoreReader
    """Reads `store`, in the blocking pool where that needs the disk."""

    tables: Tables
    registrar: Registrar
    """Registers changed topics at the NameServers."""

    statistics: BrokerStatistics
    admission: Admission
    port_counts: Mapping[PortLimit, int]
    """Closed connections and refused calls of the broker's port, by their limit."""


def broker_environment(
    env: Environment,
    live: LiveSettings,
    clock: SteadyClock,
    store: MessageStore,
    tables: Tables,
    registrar: Registrar,
    *,
    is_slave: bool,
    port_counts: Mapping[PortLimit, int],
) -> BrokerEnvironment:
    """Return the environment of the parts of one term, with new statistics and admission."""
    config = live.broker
    return BrokerEnvironment(
        clock=clock,
        timers=env.timers,
        network=env.network,
        random=env.random,
        blocking=env.blocking,
        processes=env.processes,
        safeguards=env.safeguards,
        on_security_event=env.on_security_event,
        rpc_latencies=env.rpc_latencies,
        live=live,
        is_slave=is_slave,
        store=store,
        reader=StoreReader(store, env.blocking),
        tables=tables,
        registrar=registrar,
        statistics=BrokerStatistics(started_at_ms=clock.monotonic_ms()),
        admission=Admission(
            bytes_max=config.unanswered_max_bytes,
            bytes_per_stream_max=config.stream_unanswered_max_bytes,
        ),
        port_counts=port_counts,
    )
