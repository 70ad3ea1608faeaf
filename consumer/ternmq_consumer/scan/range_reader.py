"""Reading of a range over one connection after the other, until a time without progress."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Protocol, TypeVar

from ternmq_client.retry_timeout import RetryTimeout
from ternmq_client.routes.route_cache import RouteCache
from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    RangeLost,
    RefusedError,
    TernError,
    TopicNotFound,
    TransportError,
    Unreachable,
)
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection

PieceT = TypeVar("PieceT")


class ScanClient(Protocol):
    """A client that can read ranges: a `ClientInstance`, or a test's own."""

    @property
    def env(self) -> Environment:
        """The seams."""
        ...

    @property
    def client_id(self) -> str:
        """The client's id, which its streams carry."""
        ...

    @property
    def routes(self) -> RouteCache:
        """Routes by topic."""
        ...

    async def reader(self, broker_name: str) -> Connection:
        """Return the connection to a broker's master, or to a slave that stands in for it."""
        ...

    def forget(self, broker_name: str, connection: Connection, broker_id: int = MASTER_ID) -> None:
        """Dial the broker anew next time, since `connection` has failed."""
        ...


class RangeProgress:
    """Progress of one range. Owned by the reading of it.

    Attributes:
        queue: Whose range it is.
        end: Behind its last message.
        next_offset: Everything before it was given out.
        first_offset: The first message that the queue kept, as was told last.
        queue_end: Where the queue ended, as was told last.
        has_begun: Somebody was connected to for it.
    """

    def __init__(self, queue: MessageQueue, begin: int, end: int) -> None:
        self.queue = queue
        self.end = end
        self.next_offset = begin
        self.first_offset = self.queue_end = 0
        self.has_begun = False

    def lost(self, *, end_offset: int | None = None, topic_remark: str = "") -> RangeLost:
        """Return the error that says what is not there.

        Args:
            end_offset: Where the queue ends, when it does so before the range.
            topic_remark: Why its topic is not there.
        """
        return RangeLost(
            topic=self.queue.topic,
            broker_name=self.queue.broker_name,
            queue_id=self.queue.queue_id,
            wanted_offset=self.next_offset,
            first_offset=self.first_offset,
            end_offset=end_offset,
            topic_remark=topic_remark,
        )

    def begins_late(self, connection: Connection) -> TernError:
        """Return the error of a queue that begins behind `next_offset` over `connection`.

        What a slave does not have its master may: that is no loss.
        """
        if is_master(connection):
            return self.lost()
        return self._waits_for_master(f"messages from {self.first_offset} on")

    def ends_early(
        self, connection: Connection, end_offset: int, topic_remark: str = ""
    ) -> TernError:
        """Return the error of a queue that ends before the range does over `connection`."""
        if is_master(connection):
            return self.lost(end_offset=end_offset, topic_remark=topic_remark)
        return self._waits_for_master(f"messages before {end_offset}")

    @contextmanager
    def lost_with_topic(self, connection: Connection) -> Generator[None]:
        """Turn TopicNotFound from the block into a loss of the range.

        Raises:
            TernError: As the block did; for a topic that is not there, what `ends_early` returns.
        """
        try:
            yield
        except TopicNotFound as error:
            raise self.ends_early(connection, 0, error.remark) from error

    def _waits_for_master(self, kept: str) -> Unreachable:
        topic, broker_name, queue_id = self.queue
        return Unreachable(
            f"broker {broker_name}: a slave stands in and has of queue {queue_id} of topic "
            f"{topic!r} only {kept}, not yet offset {self.next_offset}"
        )


async def read_range(
    client: ScanClient,
    progress: RangeProgress,
    over: Callable[[Connection], AsyncGenerator[PieceT]],
    *,
    timeout_s: float,
) -> AsyncGenerator[PieceT]:
    """Yield the pieces of a range to its end, over as many connections as that takes.

    Args:
        client: Open.
        progress: Of the range.
        over: Reads on over one connection, until range or queue end there; takes note in
            `progress`.
        timeout_s: For so long reading may get no further.

    Raises:
        RangeLost: Messages of the range are no longer kept, or there are none yet, or their
            topic was deleted.
        RefusedError: The broker says no.
        TransportError: For `timeout_s` nobody was there to get any further with, or only a slave
            that has not got so far.
    """
    retry_timeout = RetryTimeout(client.env, timeout_s, was_there=True)
    queue = progress.queue
    while True:
        reached = progress.next_offset
        try:
            connection = await connected(client, queue, was_there=progress.has_begun)
            progress.has_begun = True
            with (
                given_up_when_broken(client, queue.broker_name, connection),
                progress.lost_with_topic(connection),
            ):
                async with aclosing(over(connection)) as pieces:
                    async for piece in pieces:
                        yield piece
            failure = progress.ends_early(connection, progress.queue_end)
        except RangeLost:
            raise
        except TernError as error:
            failure = error
        if progress.next_offset >= progress.end:
            return
        if progress.next_offset > reached:
            retry_timeout.got_further()
        await retry_timeout.pause(failure)


async def connected(
    client: ScanClient, queue: MessageQueue, *, was_there: bool = False
) -> Connection:
    """Return the connection by which a queue is read now.

    The route is asked for anew where it lacks the broker.

    Args:
        client: Open.
        queue: Which one.
        was_there: It was read before: that no NameServer knows its topic may pass, since one that
            has just started knows nothing yet.

    Raises:
        TransportError: Nobody answers.
        TopicNotFound: There is no such topic.
    """
    try:
        route = await client.routes.route(queue.topic)
        if route.broker(queue.broker_name) is None:
            await client.routes.route_now(queue.topic)  # it may have come back, or is new
    except TopicNotFound as error:
        if was_there:
            raise Unreachable(str(error)) from error
        raise
    return await client.reader(queue.broker_name)


@contextmanager
def given_up_when_broken(
    client: ScanClient, broker_name: str, connection: Connection
) -> Generator[None]:
    """Forget `connection` when it fails in the block: the next call dials the broker anew.

    A broker that closes may return in another role, which only who dials is told.

    Raises:
        TransportError: As the block did; also where another user of the connection gave it up.
        RefusedError: As the block did.
    """
    try:
        yield
    except (TransportError, RefusedError) as error:
        if isinstance(error, TransportError) or error.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            identity = connection.identity
            broker_id = MASTER_ID if identity is None else identity.broker_id
            client.forget(broker_name, connection, broker_id)
        raise
    except ClosedError as error:
        # Not the client, or to connect again will say so.
        raise ConnectionLost(str(error)) from error


def is_master(connection: Connection) -> bool:
    """Return whether the connection is to a master, which has all messages."""
    return connection.identity is None or connection.identity.broker_id == MASTER_ID
