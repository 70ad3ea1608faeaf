"""The parts of a broker that serve readers, by pulls and by scans, wired to each other."""

from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.config import BrokerConfig
from ternmq_broker.groups.assembly import GroupAssembly, Service
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.pull.answers import PullAnswers
from ternmq_broker.pull.long_polling import PullHoldTable, TopicReaders
from ternmq_broker.pull.offset_moved import MovedEvents
from ternmq_broker.pull.rules import PullRules
from ternmq_broker.pull.service import PullService, PullServices
from ternmq_broker.pull.waker import PullWaker
from ternmq_broker.replication.place import Place
from ternmq_broker.scan.service import ScanService, scan_service
from ternmq_broker.state.tables import Tables
from ternmq_broker.storage.reader import StoreReader
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import Job
from ternmq_store.message_store import MessageStore

_SECOND_MS: Final = 1000


class PullAssembly:
    """Who reads, and who waits for something to read. Owned by `BrokerAssembly`.

    Args:
        config: The broker's settings.
        env: Clock, blocking calls, processes.
        store: What is read.
        is_closing: Tells whether nobody new is served any more.
        wake: Runs the job of that name now.

    Attributes:
        holds: Pulls that wait for a message.
        readers: Who is told of deleted topics.
        waker: Wakes those pulls.
    """

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        store: MessageStore,
        *,
        is_closing: Callable[[], bool],
        wake: Callable[[str], None],
    ) -> None:
        self._config = config
        self._env = env
        self._store = store
        self._is_closing = is_closing
        self._wake = wake
        self.holds = PullHoldTable()
        self.readers = TopicReaders()
        self._scans: ScanService | None = None
        self.waker = PullWaker(
            self.holds,
            lambda topic, queue_id: store.queue_range(topic, queue_id)[1],
            short_polling_s=config.short_polling_ms / _SECOND_MS,
            is_long_polling=config.long_polling_enabled,
        )

    def services(
        self,
        live: LiveSettings,
        tables: Tables,
        groups: GroupAssembly,
        moved: MovedEvents,
        place: Place,
    ) -> Sequence[Service]:
        """Return what serves readers. Once only.

        Args:
            live: Settings that may change.
            tables: Loaded.
            groups: Who reads.
            moved: Told of offsets that are corrected.
            place: Where the broker stands among the members of its name.
        """
        env, store, filters = self._env, self._store, groups.filters.rules
        rules = PullRules(tables.topics, tables.groups, groups.sessions.table, filters)
        pulls = PullService(
            PullServices(
                store=store,
                reader=StoreReader(store, env.blocking),
                rules=rules,
                answers=PullAnswers(
                    *(store, tables.groups, tables.offsets, moved, place),
                    slave_read_enabled=lambda: live.broker.slave_read_enabled,
                    slave_offset_check_enabled=lambda: live.broker.slave_offset_check_enabled,
                ),
                offset_rules=groups.offset_rules,
                holds=self.holds,
                readers=self.readers,
                clock=env.clock,
                wait_ms_max=lambda: live.broker.pull_wait_ms,
                is_closing=self._is_closing,
            )
        )
        self._scans = scan_service(
            *(self._config, env, store, tables.topics, rules, self.readers),
            is_slave=place.is_slave,
            is_closing=self._is_closing,
            wake=self._wake,
        )
        return pulls, self._scans

    def jobs(self) -> Sequence[Job]:
        """Return what runs beside the handlers."""
        return (self.waker.job(), *(() if self._scans is None else self._scans.jobs()))

    def drain(self) -> None:
        """Let waiting pulls go, and end scans: who reads asks again, elsewhere or later."""
        for pull in self.holds.take_all():
            pull.wake()
        if self._scans is not None:
            self._scans.drain()

    async def close(self) -> None:
        """Leave no process behind. For when no handler runs any more."""
        if self._scans is not None:
            await self._scans.close()
