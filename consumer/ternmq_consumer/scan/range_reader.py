"""Reading of a range over one connection after another, until a timeout without progress."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import Generic, Protocol, TypeVar

from ternmq_client.retry_timeout import RetryTimeout
from ternmq_client.routes.route_cache import RouteCache
from ternmq_consumer.scan.range_batches import ScanOptions
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

BatchT = TypeVar("BatchT")


class ScanClient(Protocol):
    """Client that can read ranges: a `ClientInstance`, or one of a test."""

    @property
    def env(self) -> Environment:
        """Environment of the client."""
        ...

    @property
    def client_id(self) -> str:
        """Id of the client in its streams."""
        ...

    @property
    def routes(self) -> RouteCache:
        """Routes by topic."""
        ...

    async def reader(self, broker_name: str) -> Connection:
        """Return the connection to a broker's master, or to a slave that replaces it."""
        ...

    def forget(self, broker_name: str, connection: Connection, broker_id: int = MASTER_ID) -> None:
        """Connect to the broker again next time, since `connection` has failed."""
        ...


class RangeReader(ABC, Generic[BatchT]):
    """Reading of one range over one connection after the other.

    Args:
        client: Open client.
        queue: Queue of the range.
        begin: First offset of the range.
        end: Offset behind the last message of the range.
        options: Messages and columns to read.

    Attributes:
        next_offset: Offset before which every message was returned or passed over.
        first_offset: First message that the queue kept, by the broker's last reply.
        queue_end: End of the queue, by the broker's last reply.
    """

    def __init__(
        self,
        client: ScanClient,
        queue: MessageQueue,
        begin: int,
        end: int,
        options: ScanOptions | None,
    ) -> None:
        self.client = client
        self.queue = queue
        self.end = end
        self.options = ScanOptions() if options is None else options
        self.next_offset = begin
        self.first_offset = self.queue_end = 0

    async def read(self) -> AsyncGenerator[BatchT]:
        """Yield the batches of the range to its end, over as many connections as that takes.

        Raises:
            RangeLost: Messages of the range are no longer kept, or there are none yet, or their
                topic was deleted.
            RefusedError: The broker refused the request.
            TransportError: There was no progress for `retry_timeout_s`: the broker was away, or
                only a slave answered that lacks the messages.
        """
        client, queue, was_there = self.client, self.queue, False
        retry_timeout = RetryTimeout(client.env, self.options.retry_timeout_s, was_there=True)
        while True:
            reached = self.next_offset
            try:
                connection = await connection_for(client, queue, was_there=was_there)
                was_there = True
                with (
                    given_up_when_broken(client, queue.broker_name, connection),
                    self._lost_with_topic(connection),
                ):
                    async with aclosing(self.over(connection)) as batches:
                        async for batch in batches:
                            yield batch
                failure = self.ends_early(connection, self.queue_end)
            except RangeLost:
                raise
            except TernError as error:
                failure = error
            if self.next_offset >= self.end:
                return
            if self.next_offset > reached:
                retry_timeout.got_further()
            await retry_timeout.pause(failure)

    @abstractmethod
    def over(self, connection: Connection) -> AsyncGenerator[BatchT]:
        """Read on over one connection, until the range or the queue ends there."""

    def lost(self, *, end_offset: int | None = None, topic_remark: str = "") -> RangeLost:
        """Return the error of a range whose messages are gone, or not there yet.

        Args:
            end_offset: End of the queue, if that comes before the end of the range.
            topic_remark: Reason why the topic does not exist.
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

        Messages that a slave lacks are not lost: its master may have them.
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
    def _lost_with_topic(self, connection: Connection) -> Generator[None]:
        try:
            yield
        except TopicNotFound as error:
            raise self.ends_early(connection, 0, error.remark) from error

    def _waits_for_master(self, kept: str) -> Unreachable:
        topic, broker_name, queue_id = self.queue
        return Unreachable(
            f"broker {broker_name}: a slave replaces the master and has only {kept} of queue"
            f" {queue_id} of topic {topic!r}, not yet offset {self.next_offset}"
        )


async def connection_for(
    client: ScanClient, queue: MessageQueue, *, was_there: bool = False
) -> Connection:
    """Return the connection over which a queue can be read now.

    A route without the broker is queried again.

    Args:
        client: Open client.
        queue: Queue to read.
        was_there: True if the queue was read before: then an unknown topic is a passing error,
            since a NameServer that has just started knows no topics.

    Raises:
        TransportError: No NameServer or broker answers.
        TopicNotFound: There is no such topic.
    """
    try:
        route = await client.routes.route(queue.topic)
        if route.broker(queue.broker_name) is None:
            await client.routes.route_now(queue.topic)  # the broker may be new, or back
    except TopicNotFound as error:
        if was_there:
            raise Unreachable(str(error)) from error
        raise
    return await client.reader(queue.broker_name)


@contextmanager
def given_up_when_broken(
    client: ScanClient, broker_name: str, connection: Connection
) -> Generator[None]:
    """Forget `connection` if it fails in the block: the next call connects to the broker again.

    A closing broker may return in another role, which only a new connection shows.

    Raises:
        TransportError: The block raised it, or another user closed the connection.
        RefusedError: The block raised it.
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
        # The connection is closed; a closed client raises at the next connect.
        raise ConnectionLost(str(error)) from error


def is_master(connection: Connection) -> bool:
    """Return whether the connection is to a master, which has all messages."""
    return connection.identity is None or connection.identity.broker_id == MASTER_ID
