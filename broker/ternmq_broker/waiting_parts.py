"""The parts that deliver what waits: built around an open store, and wired to each other."""

from collections.abc import Awaitable, Callable, Sequence

from ternmq_broker.delay.delay_service import DelayService
from ternmq_broker.delay.deliverer import Deliverer
from ternmq_broker.inner.writer import InnerWriter
from ternmq_broker.reading import StoreReader
from ternmq_broker.tables import Tables
from ternmq_model.offsets import PhysicalOffset
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import Job
from ternmq_store.dispatcher import Arrival
from ternmq_store.message_store import MessageStore


class WaitingParts:
    """Delayed and timed messages of one broker. Owned by `Parts`.

    Args:
        store: Open.
        inner: Stores what is due.
        tables: Loaded.
        env: Clock, blocking calls.
        wake: Runs the job of that name now.
    """

    def __init__(
        self,
        store: MessageStore,
        inner: InnerWriter,
        tables: Tables,
        env: Environment,
        *,
        wake: Callable[[str], None],
    ) -> None:
        reader = StoreReader(store, env.blocking)
        deliverer = Deliverer(inner, tables.topics.get)
        self.delays = DelayService(reader, deliverer, tables.delays, env.clock, wake=wake)

    def jobs(self) -> Sequence[Job]:
        """Return what delivers: begun when the broker listens, ended before the store's jobs."""
        return (self.delays.job(),)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Take note of new messages."""
        self.delays.arrived(arrivals)

    async def settle(self, flush_to: Callable[[PhysicalOffset], Awaitable[None]]) -> None:
        """Bring the progress of the jobs, which have ended, into the tables.

        Args:
            flush_to: Brings the log to the disk up to an offset, if it can.
        """
        self.delays.stop()
        await flush_to(self.delays.unsettled_end)
        self.delays.settle()
