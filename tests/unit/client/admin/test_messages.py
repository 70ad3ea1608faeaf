import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from ternmq_client.admin.messages import MessageAdmin
from ternmq_model.errors import MessageNotFound, RefusedError, TopicNotFound, UsageError, refusal
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import encode_record
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import PULL, QUERY_MESSAGES, VIEW_MESSAGE
from tests.support.records import BORN_HOST, STORE_HOST, sizes_of

MISSING = refusal(ResponseCode.QUERY_NOT_FOUND, "not here")
NO_TOPIC = refusal(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
ID = "7F00000100002A9F0000000000000064"
QUEUE = MessageQueue("T", "a", 0)


def stored(offset: int, stored_at_ms: int = 1) -> bytes:
    return encode_record(
        topic=b"T",
        queue_id=0,
        body=b"%d" % offset,
        properties=b"",
        born_at_ms=1,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        queue_offset=QueueOffset(offset),
        physical_offset=PhysicalOffset(100 * offset),
        stored_at_ms=stored_at_ms,
    )


def found(*records: bytes) -> messages.QueryMessagesReply:
    return messages.QueryMessagesReply(
        records=b"".join(records), record_sizes=sizes_of(records).tobytes()
    )


class Broker:
    """A connection to a broker that gives the next of its answers."""

    def __init__(self, answers: Sequence[object], asked: list[tuple[object, Any]]) -> None:
        self._answers = [*answers]
        self._asked = asked

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> object:
        self._asked.append((rpc, request))
        answer = self._answers.pop(0)
        if isinstance(answer, RefusedError):
            raise answer
        return answer


class Admin(MessageAdmin):
    """Asks brokers that answer what a test wants.

    Args:
        answers: By broker name.
    """

    def __init__(self, **answers: Sequence[object]) -> None:
        super().__init__()
        self.asked: list[tuple[object, Any]] = []
        self._brokers = {name: Broker(each, self.asked) for name, each in answers.items()}

    async def _readable(
        self, cluster: str = "", brokers: Collection[str] = ()
    ) -> Sequence[BrokerData]:
        return [BrokerData("c", name, ()) for name in brokers or self._brokers]

    @asynccontextmanager
    async def _reader(self, data: BrokerData) -> AsyncGenerator[Connection]:
        yield cast("Connection", self._brokers[data.broker_name])


def asking(admin: Admin, question: Callable[[Admin], Awaitable[Any]]) -> list[tuple[str, int]]:
    """Return broker and offset of what is found."""

    async def main() -> list[tuple[str, int]]:
        answer = await question(admin)
        several: list[StoredMessage] = [answer] if isinstance(answer, StoredMessage) else answer
        return [(one.queue.broker_name, one.queue_offset) for one in several]

    return asyncio.run(main())


def test_message_is_asked_of_every_broker() -> None:
    admin = Admin(a=[MISSING], b=[messages.ViewMessageReply(record=stored(7))], c=[MISSING])
    assert asking(admin, lambda admin: admin.message(ID)) == [("b", 7)]
    assert [rpc for rpc, _ in admin.asked] == [VIEW_MESSAGE] * 3
    with pytest.raises(MessageNotFound, match=ID):
        asking(Admin(a=[MISSING]), lambda admin: admin.message(ID))
    with pytest.raises(UsageError):
        asking(Admin(), lambda admin: admin.message("no id"))


def test_query_gives_the_newest_messages_of_all_brokers_oldest_first() -> None:
    admin = Admin(a=[found(stored(1, 10), stored(2, 40))], b=[NO_TOPIC], c=[found(stored(3, 20))])
    assert asking(admin, lambda admin: admin.query_messages("T", "k", maximum=2)) == [
        ("c", 3),
        ("a", 2),
    ]
    assert [(rpc, request.messages_max) for rpc, request in admin.asked] == [
        (QUERY_MESSAGES, 2)
    ] * 3


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        (NO_TOPIC, MISSING, MessageNotFound),
        (MISSING, NO_TOPIC, MessageNotFound),
        (NO_TOPIC, NO_TOPIC, TopicNotFound),
    ],
)
def test_query_without_result_says_what_the_broker_that_looked_says(
    a: RefusedError, b: RefusedError, error: type[RefusedError]
) -> None:
    with pytest.raises(error):
        asking(Admin(a=[a], b=[b]), lambda admin: admin.query_messages("T", "k"))


def test_messages_at_a_deleted_offset_are_the_first_that_are_kept() -> None:
    corrected = messages.PullReply(next_offset=5)
    reply = messages.PullReply(
        records=stored(5), record_sizes=sizes_of([stored(5)]).tobytes(), next_offset=6
    )
    admin = Admin(a=[corrected, reply], b=[])
    assert asking(admin, lambda admin: admin.messages_at(QUEUE, 2)) == [("a", 5)]
    assert [(rpc, request.offset) for rpc, request in admin.asked] == [(PULL, 2), (PULL, 5)]


def test_queue_has_no_messages_at_its_end() -> None:
    admin = Admin(a=[messages.PullReply(next_offset=9)])
    assert asking(admin, lambda admin: admin.messages_at(QUEUE, 9)) == []
