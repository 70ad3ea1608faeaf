"""Promises of a cluster, checked against its journal and its stores at the end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ternmq_model.message import SendStatus
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_testing.explore.journal import Journal, Knowledge, NotedSend

_LATE_MS = 60_000
"""Time after which a delayed message must have been delivered, ms: its broker may be late."""


@dataclass(slots=True)
class Stored:
    """Content of the queues at the end."""

    at: Mapping[tuple[MessageQueue, int], str]
    """Message ids by place."""

    starts: Mapping[MessageQueue, int]
    """First offset of each queue: messages before it have expired."""

    first: dict[tuple[MessageQueue, str], int] = field(init=False)
    """Lowest offset of a message in a queue."""

    topics: dict[str, set[str]] = field(init=False)
    """Message ids by topic."""

    def __post_init__(self) -> None:
        self.first, self.topics = {}, {}
        for (queue, offset), message_id in self.at.items():
            lowest = self.first.setdefault((queue, message_id), offset)
            self.first[queue, message_id] = min(lowest, offset)
            self.topics.setdefault(queue.topic, set()).add(message_id)

    @classmethod
    def of(cls, messages: Iterable[StoredMessage], starts: Mapping[MessageQueue, int]) -> "Stored":
        """Return the places of `messages`."""
        at = {(each.queue, int(each.queue_offset)): each.message_id for each in messages}
        return cls(at, starts)

    def has(self, topic: str, message_id: str) -> bool:
        """Return whether the topic has the message, or may have had it."""
        expired = any(start and queue.topic == topic for queue, start in self.starts.items())
        return expired or message_id in self.topics.get(topic, ())


def broken_promises(
    journal: Journal, stored: Stored, *, now_ms: int, is_durable: bool
) -> list[str]:
    """Return a sentence for each promise that was broken. Pure.

    Args:
        journal: Messages that were sent, acknowledged and delivered.
        stored: Content of the queues.
        now_ms: Time of the check, Unix ms.
        is_durable: Brokers flush before they acknowledge: no acknowledged message may be lost.
    """
    acknowledged = [each for each in journal.sends if each.knowledge is Knowledge.ACKNOWLEDGED]
    found: list[str] = []
    if is_durable:
        found += _lost(acknowledged, stored, now_ms)
        found += _commits_lost(journal, acknowledged, stored)
    found += _reordered(acknowledged, stored)
    found += _rolled_back_visible(journal, acknowledged, stored)
    found += _contradicted(journal, acknowledged)
    return found


def _lost(sends: Iterable[NotedSend], stored: Stored, now_ms: int) -> Iterable[str]:
    sends = list(sends)
    cancelled = {each.cancels for each in sends}
    for sent in sends:
        result = sent.result
        if result is None or result.status is not SendStatus.SEND_OK or sent.is_half:
            continue
        if sent.due_ms:
            is_due = sent.due_ms + _LATE_MS <= now_ms
            is_delivered = sent.cancels or result.message_id in cancelled
            if is_due and not is_delivered and not stored.has(sent.topic, result.message_id):
                yield f"lost: delayed message #{sent.number} was acknowledged and never delivered"
            continue
        if result.queue_offset < stored.starts.get(result.queue, 0):
            continue
        at = stored.at.get((result.queue, int(result.queue_offset)))
        if at != result.message_id:
            what = "nothing is" if at is None else f"message {at} is"
            yield (
                f"lost: message #{sent.number} was acknowledged at {result.queue}, offset "
                f"{result.queue_offset}, and {what} there"
            )


def _commits_lost(journal: Journal, sends: Iterable[NotedSend], stored: Stored) -> Iterable[str]:
    for sent, message_id in _halves(sends):
        transaction = journal.transactions.get(message_id)
        if transaction is None or not transaction.is_confirmed:
            continue
        is_commit = set(transaction.resolutions) == {Resolution.COMMIT}
        if is_commit and not stored.has(sent.topic, message_id):
            yield f"lost: the commit of #{sent.number} was confirmed and {sent.topic} lacks it"


def _reordered(sends: Iterable[NotedSend], stored: Stored) -> Iterable[str]:
    """Yield messages of one key that lie in one queue in another order than one producer's."""
    last: dict[tuple[int, str, str, MessageQueue], tuple[NotedSend, int]] = {}
    for sent in sends:
        if not sent.key or sent.is_half or sent.due_ms or sent.result is None:
            continue
        queue = sent.result.queue
        offset = stored.first.get((queue, sent.result.message_id))
        if offset is None:
            continue
        place = (sent.producer, sent.topic, sent.key, queue)
        before = last.get(place)
        if before is not None and before[1] >= offset:
            yield (
                f"reordered: key {sent.key!r}: message #{sent.number} has offset {offset} in "
                f"{queue}, and #{before[0].number}, sent before it, offset {before[1]}"
            )
        last[place] = (sent, offset)


def _rolled_back_visible(
    journal: Journal, sends: Iterable[NotedSend], stored: Stored
) -> Iterable[str]:
    for message_id, transaction in journal.transactions.items():
        if set(transaction.resolutions) != {Resolution.ROLLBACK}:
            continue
        number = next((each.number for each, id_ in _halves(sends) if id_ == message_id), 0)
        named = f"#{number}" if number else message_id
        if message_id in journal.delivered:
            group = journal.delivered[message_id]
            yield f"rolled back and visible: group {group} got message {named}"
        elif any(message_id in ids for ids in stored.topics.values()):
            yield f"rolled back and visible: message {named} is in its topic"


def _contradicted(journal: Journal, sends: Iterable[NotedSend]) -> Iterable[str]:
    for sent, message_id in _halves(sends):
        transaction = journal.transactions.get(message_id)
        if transaction is not None and len(set(transaction.resolutions)) > 1:
            said = ", then ".join(each.name for each in transaction.resolutions)
            yield f"contradicted: execute and check said of #{sent.number}: {said}"


def _halves(sends: Iterable[NotedSend]) -> Iterable[tuple[NotedSend, str]]:
    return ((each, each.result.message_id) for each in sends if each.is_half and each.result)
