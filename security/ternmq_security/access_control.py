"""Users and permissions of one service: its table, kept up to date, and the check of its calls."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ternmq_model.address import Address, is_loopback
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Gate, Handler
from ternmq_runtime.service import Job
from ternmq_security.access.access_table import AccessTable, Doubt
from ternmq_security.access_store import AccessFile, AccessStore
from ternmq_security.access_sync import AccessSource
from ternmq_security.audit.reporter import AuditReporter
from ternmq_security.guard import Guard, guarded
from ternmq_security.identifier import Identifier

logger = logging.getLogger(__name__)

_FIRST_ANSWER_S: Final = 1.0
_REFUSED_LATER: Final = "; the next minor version refuses this without --insecure"
_EXPIRY_PAUSE_S: Final = 0.5


class AccessControl:
    """Table of one service, its sources, and the guard of its calls. Owned by its loop.

    While a service does not know whether users exist, the guard refuses every call (`Doubt`). That
    is so without a file until it has asked: a copy with TLS or an identity until one NameServer has
    answered, and a NameServer with peers until all have. A copy with neither is open meanwhile.

    Args:
        env: Network, clock and blocking calls.
        listen: Address of the service.
        file: File of the table; None = in memory alone.
        sources: NameServers that are asked for newer tables.
        is_copy: True = this service changes no table by itself. See `AccessStore`.
        has_plain_port: True = the service has a port without TLS, too.

    Attributes:
        store: The table with its file.
    """

    def __init__(
        self,
        env: Environment,
        listen: Address,
        file: AccessFile | None,
        sources: Sequence[Address],
        *,
        is_copy: bool = False,
        has_plain_port: bool = False,
    ) -> None:
        self.store: Final = AccessStore(
            file, env.blocking, is_copy=is_copy, on_change=self._changed
        )
        self._env = env
        self._listen = listen
        self._is_copy = is_copy
        self._has_plain_port = has_plain_port
        self._is_kept = file is not None
        self._has_begun = False
        self._warned = ""
        self._sources = [AccessSource(each, env, self.store, self._take) for each in sources]
        self._answers: dict[AccessSource, AccessTable | None] = {}
        """Last answers; None = the NameServer gave none."""
        self._asked = asyncio.Event()
        report = env.on_security_event
        self._guard = Guard(
            Identifier(lambda: self.store.table, env.blocking, env.clock),
            None if report is None else AuditReporter(report, lambda: self.store.table),
        )

    async def load(self) -> None:
        """Load the table. The caller holds the directory of the file.

        Raises:
            StoreError: The file cannot be read. A copy asks for another table instead.
        """
        safeguards = self._env.safeguards
        is_protected = safeguards.has_identity or safeguards.has_tls or not self._is_copy
        is_unsure = bool(self._sources) and is_protected
        await self.store.load(AccessTable(doubt=Doubt.UNASKED if is_unsure else Doubt.NONE))

    def jobs(self) -> Sequence[Job]:
        """Return the jobs that save and renew the table, and end identities that expire."""
        expiry = Job(name="identities", interval_s=_EXPIRY_PAUSE_S, step=self._expire)
        return (self.store.job, expiry, *(each.job for each in self._sources))

    async def begin(self) -> None:
        """Wait until a NameServer or peer has answered, a second at most. The jobs are running.

        A service that knows of no users and has no credentials does not wait.
        """
        is_sure = self.store.table.doubt is Doubt.NONE and not self._env.safeguards.has_identity
        if self._sources and not is_sure:
            with suppress(TimeoutError):
                async with self._env.timers.timeout(_FIRST_ANSWER_S):
                    await self._asked.wait()
        self._has_begun = True
        self._warn()

    def _warn(self) -> None:
        """Log who may do everything, at the start and when that changes."""
        safeguards = self._env.safeguards
        if not self._has_begun or safeguards.accepts_insecure:
            return
        before, self._warned = self._warned, self._exposure()
        if self._warned not in ("", before):
            # The first users of a cluster may come by the network, with certificates.
            later = "" if safeguards.asks_clients else _REFUSED_LATER
            logger.warning("service is exposed reason=%r", self._warned + later)

    @property
    def gate(self) -> Gate:
        """Check of callers before their requests are read."""
        return self._guard

    def guarded(self, handlers: Sequence[Handler]) -> list[Handler]:
        """Return handlers whose calls are checked by the table."""
        return guarded(handlers, self._guard)

    def warnings(self) -> Sequence[str]:
        """Return what is not safe about this service, a sentence each."""
        table = self.store.table
        knows = f"has version {table.version} of the users"
        if table.doubt is not Doubt.NONE:
            knows = "does not know the users, refuses every call"
        # Without users a NameServer that is away is a problem of routes alone.
        is_shown = table.users or table.doubt is not Doubt.NONE
        found = [
            f"{knows}, and {each.problem}" for each in self._sources if is_shown and each.problem
        ]
        if table.users and not self._is_kept:
            found.append("keeps its users in memory alone: a restart loses them")
        exposure = self._exposure()
        return [*found, exposure] if exposure else found

    def _exposure(self) -> str:
        """Return who may do everything from another machine; empty = nobody."""
        safeguards, table = self._env.safeguards, self.store.table
        has_tls = safeguards.has_tls and not self._has_plain_port
        is_closed = (has_tls and table.users) or table.doubt is not Doubt.NONE
        if is_closed or is_loopback(self._listen.host):
            return ""
        asks = safeguards.asks_clients and has_tls
        who = "a certificate of its CA" if asks else "a way to its port"
        lacks = "users" if has_tls else "TLS" if table.users else "TLS and users"
        what = "read what is sent" if table.users else "read and change everything"
        return f"listens on {self._listen} without {lacks}: who has {who} may {what}"

    async def leave(self) -> None:
        """End asking, before the jobs end. Safe to repeat."""
        for each in self._sources:
            await each.leave()

    async def _expire(self) -> bool:
        self._guard.step(self._env.clock.wall_ms())
        return False

    async def _take(self, source: AccessSource, answer: AccessTable | None) -> None:
        self._answers[source] = answer
        has_all = len(self._answers) == len(self._sources)
        if has_all or answer is not None:
            self._asked.set()
        if answer is None or (self._is_copy and answer.doubt is Doubt.UNASKED):
            return
        is_open = not answer.users and answer.doubt is not Doubt.REFUSED
        is_asking = self.store.table.doubt is Doubt.UNASKED and not self._is_copy
        if is_open and is_asking and (not has_all or None in self._answers.values()):
            return
        await self.store.take(AccessTable() if answer.doubt is Doubt.UNASKED else answer)

    def _changed(self) -> None:
        self._guard.table_changed()
        self._warn()
