"""Half messages, their ends, and the producers that are asked for them, in the contract's words."""

from dataclasses import dataclass

from ternmq_model.properties import CHECK_IMMUNITY_S, STAGED_FOR
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods
from tests.support.brokers import Client, SessionStream, offsets_of, stored

GROUP = "payers"
COMMIT, ROLLBACK, UNKNOWN = transactions.COMMIT, transactions.ROLLBACK, transactions.UNKNOWN


@dataclass(frozen=True)
class Begun:
    """A transaction that was begun."""

    topic: str
    key: str
    offset: int

    def end(
        self,
        resolution: transactions.Resolution,
        *,
        group: str = GROUP,
        key: str | None = None,
        topic: str | None = None,
    ) -> transactions.EndTransactionRequest:
        """Return what ends it."""
        return transactions.EndTransactionRequest(
            producer_group=group,
            topic=self.topic if topic is None else topic,
            message_id=self.key if key is None else key,
            transaction_offset=self.offset,
            resolution=resolution,
        )


async def begin(
    client: Client,
    *bodies: bytes,
    topic: str = "flights",
    immunity_s: int | None = None,
    staged_for: str | None = None,
) -> list[Begun]:
    """Send half messages in one batch; the body is the unique key."""
    sender = await client.open_sender(producer_group=GROUP)
    further = {} if staged_for is None else {STAGED_FOR: staged_for}
    if immunity_s is not None:
        further[CHECK_IMMUNITY_S] = str(immunity_s)
    records = [
        sender.record(
            topic,
            body=body,
            properties={
                "UNIQ_KEY": body.decode(),
                "TRAN_MSG": "true",
                "PGROUP": GROUP,
                **further,
            },
        )
        for body in bodies
    ]
    reply = await sender.send(*records)
    assert not reply.refused, reply.refused
    assert not reply.status.code, reply.status
    await sender.stream.finish()
    places = offsets_of(reply.physical_offsets)
    return [Begun(topic, body.decode(), at) for body, at in zip(bodies, places, strict=True)]


async def end(
    client: Client, *requests: transactions.EndTransactionRequest
) -> list[transactions.EndTransactionReply]:
    """End transactions in one message of a stream."""
    stream = client.connection.open(service_methods.END_TRANSACTIONS)
    await stream.write(transactions.EndTransactionsRequest(transactions=requests))
    reply = await stream.read()
    await stream.finish()
    assert reply is not None
    return list(reply.outcomes)


async def find(
    client: Client, *begun: Begun, group: str = GROUP
) -> transactions.FindTransactionsReply:
    """Ask where transactions stand."""
    stream = client.connection.open(service_methods.FIND_TRANSACTIONS)
    request = transactions.FindTransactionsRequest(
        producer_group=group,
        transaction_offsets=[one.offset for one in begun],
        message_ids=[one.key for one in begun],
    )
    await stream.write(request)
    reply = await stream.read()
    await stream.finish()
    assert reply is not None
    return reply


async def listed(client: Client, staged_for: str = "") -> list[transactions.OpenBatch]:
    """Return what is open."""
    stream = client.connection.open(service_methods.LIST_TRANSACTIONS)
    await stream.write(transactions.ListTransactionsRequest(staged_for=staged_for))
    await stream.finish()
    found: list[transactions.OpenBatch] = []
    while (reply := await stream.read()) is not None:
        found += reply.batches
    return found


async def rolled_back(client: Client, staged_for: str, *, force: bool = False) -> tuple[int, int]:
    """Roll back as operators do; return how many were, and how many had ended before."""
    stream = client.connection.open(service_methods.ROLL_BACK_STAGED)
    await stream.write(transactions.RollBackStagedRequest(staged_for=staged_for, force=force))
    await stream.finish()
    count = ended = 0
    while (reply := await stream.read()) is not None:
        count, ended = count + reply.rolled_back, ended + reply.already_ended
    return count, ended


async def lying(client: Client, topic: str = "flights", queue_id: int = 0) -> list[StoredMessage]:
    """Return everything in a queue."""
    found: list[StoredMessage] = []
    offset = 0
    while (reply := await client.pull(topic, offset, queue_id=queue_id)).records:
        found += stored(reply)
        offset = reply.next_offset
    return found


async def bodies_of(client: Client, topic: str = "flights") -> list[bytes]:
    """Return the bodies of everything in a topic's first queue."""
    return [message.body for message in await lying(client, topic)]


async def open_producer(
    client: Client, client_id: str = "payer@1", group: str = GROUP
) -> SessionStream:
    """Open a producer's Session."""
    stream: SessionStream = client.connection.open(service_methods.SESSION)
    hello = groups.Hello(client_id=client_id, incarnation=client_id, producer_groups=[group])
    await stream.write(groups.SessionRequest(hello=hello))
    welcome = await stream.read()
    assert welcome is not None
    assert not welcome.welcome.status.code
    return stream


async def question(stream: SessionStream) -> groups.CheckTransaction:
    """Return the next question."""
    while (reply := await stream.read()) is not None:
        if reply.HasField("check_transaction"):
            return reply.check_transaction
    raise AssertionError("the session ended")
