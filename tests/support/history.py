"""The history of a test: what was sent, delivered, and lies in the queues; and its faults.

A scenario notes every send with its outcome, every delivery to a listener, and at the end every
record of every queue. `History.faults` then says, by name, what should not be. All names:

lost               acknowledged, and in no queue of its topic
stored-twice       in its topic more than once though the sender was not allowed to
phantom            stored or delivered, and never sent, or definitely refused
corrupted          another body than was sent
hole               a queue's offsets are not one after the other
moved              delivered from a place where another message lies
reordered          messages of one key lie or were delivered in another order than they were sent
skipped            an orderly group got a message before the one that it should have finished first
unwanted           delivered to a group whose subscription does not take it
unconsumed         stored, and a group neither finished it nor has it as a dead letter
redelivered        finished by a group more often than allowed
early              delivered or stored for delivery before its time
undecided-visible  of a transaction that was never decided, and stored or delivered
rolled-back-visible  of a transaction that was rolled back, and stored or delivered
dead-letter-missing  never consumed with success, and no dead letter
dead-letter-spurious  a dead letter, though its group finished it, or none was due
dead-letter-early  a dead letter before all its attempts were made
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from ternmq_model.queue import MessageQueue

_MARK = b"|"


class Outcome(Enum):
    """What a sender learned."""

    STORED = auto()
    REFUSED = auto()
    """Definitely not stored."""
    UNKNOWN = auto()
    """It may be stored."""


class Decision(Enum):
    """What became of a message's transaction."""

    NONE = auto()
    """It has none."""
    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNDECIDED = auto()
    IN_DOUBT = auto()
    """Whoever decided does not know whether the broker heard of it."""


class Fault(NamedTuple):
    """Something that should not be."""

    name: str
    message_id: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message_id}: {self.text}"


@dataclass(slots=True)
class Sent:
    """A message that somebody sent."""

    message_id: str
    topic: str
    outcome: Outcome
    number: int
    """Counts the sends of the history."""
    key: str = ""
    """Messages of one key keep the order of their sends; empty = no order."""
    not_before_ms: int = 0
    """Wall clock of the broker; 0 = at once."""
    decision: Decision = Decision.NONE


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a listener was called with."""

    message_id: str
    group: str
    body: bytes
    queue: MessageQueue
    queue_offset: int
    at_ms: int
    attempt: int
    """Counts from 0: how often it was sent back before."""
    is_finished: bool
    """The listener took it."""


@dataclass(frozen=True, slots=True)
class Lying:
    """A record that a scan of its queue found at the end."""

    message_id: str
    body: bytes
    queue: MessageQueue
    queue_offset: int
    stored_at_ms: int


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What a group was promised."""

    group: str
    topics: frozenset[str]
    redeliveries_max: int | None = None
    """How many messages may be finished more than once in all; None = any number."""
    is_orderly: bool = False
    unwanted: frozenset[str] = frozenset()
    """Messages that its subscription does not take."""
    doomed: frozenset[str] = frozenset()
    """Messages that its listener never finishes: they become dead letters."""
    attempts: int = 17
    """Deliveries before a message is a dead letter."""
    is_whole: bool = True
    """It must have consumed everything by the end."""


@dataclass
class History:
    """What happened in one scenario. Owned by its test."""

    stored_twice_allowed: bool = False
    moves_allowed: bool = False
    """A place may have had another message: a master was replaced by one that did not have it."""
    sent: dict[str, Sent] = field(default_factory=dict[str, Sent])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    lying: list[Lying] = field(default_factory=list[Lying])
    dead: dict[str, list[Lying]] = field(default_factory=dict[str, list[Lying]])
    """Dead letters by group."""

    def note_sent(
        self,
        message_id: str,
        topic: str,
        outcome: Outcome,
        *,
        key: str = "",
        not_before_ms: int = 0,
        decision: Decision = Decision.NONE,
    ) -> Sent:
        """Note a send. Ids are unique; messages of one key come in the order of their sends."""
        assert message_id not in self.sent, f"{message_id} is sent twice by the test"
        sent = Sent(
            message_id,
            topic,
            outcome,
            len(self.sent),
            key,
            not_before_ms,
            decision,
        )
        self.sent[message_id] = sent
        return sent

    def faults(self, groups: Iterable[GroupRules] = ()) -> list[Fault]:
        """Return every fault, sorted by name and message."""
        found = [
            *self._store_faults(),
            *self._order_faults(),
            *(fault for lying in self.lying for fault in self._record_faults(lying)),
        ]
        for rules in groups:
            found += self._group_faults(rules)
        return sorted(set(found))

    def check_once_at_each_broker(self) -> None:
        """Fail if a broker has a message twice: that is none of its producer's doing."""
        places = Counter((each.message_id, each.queue.broker_name) for each in self.lying)
        twice = [place for place, count in places.items() if count > 1]
        assert not twice, f"stored twice: {twice}"

    def check(self, groups: Iterable[GroupRules] = (), *, seed: object = "") -> None:
        """Fail, naming the first faults, unless there is none.

        Raises:
            AssertionError: There are faults.
        """
        faults = self.faults(groups)
        if faults:
            names = Counter(fault.name for fault in faults)
            lines = "\n".join(map(str, faults[:20]))
            raise AssertionError(f"seed {seed}: {dict(names)}\n{lines}")

    def _record_faults(self, record: Lying | Delivery) -> Iterable[Fault]:
        """Yield what is wrong with something that was stored or delivered, seen alone."""
        name, where = record.message_id, f"{record.queue} offset {record.queue_offset}"
        sent = self.sent.get(name)
        if sent is None or sent.outcome is Outcome.REFUSED:
            yield Fault("phantom", name, f"{where}: {'refused' if sent else 'never sent'}")
            return
        if record.body != make_body(name, len(record.body)):
            yield Fault("corrupted", name, f"{where}: another body")
        if sent.decision is Decision.UNDECIDED:
            yield Fault("undecided-visible", name, where)
        if sent.decision is Decision.ROLLED_BACK:
            yield Fault("rolled-back-visible", name, where)
        at_ms = record.at_ms if isinstance(record, Delivery) else record.stored_at_ms
        if at_ms < sent.not_before_ms:
            yield Fault("early", name, f"{where}: {sent.not_before_ms - at_ms} ms before its time")

    def _store_faults(self) -> Iterable[Fault]:
        places: defaultdict[str, list[Lying]] = defaultdict(list)
        offsets: defaultdict[MessageQueue, list[int]] = defaultdict(list)
        for lying in self.lying:
            places[lying.message_id].append(lying)
            offsets[lying.queue].append(lying.queue_offset)
        for name, sent in self.sent.items():
            copies = len(places.get(name, ()))
            must_lie = sent.outcome is Outcome.STORED and sent.decision in (
                *(Decision.NONE, Decision.COMMITTED),
            )
            if must_lie and not copies:
                yield Fault("lost", name, f"acknowledged, and not in {sent.topic}")
            is_transaction = sent.decision is not Decision.NONE
            if copies > 1 and (is_transaction or not self.stored_twice_allowed):
                yield Fault("stored-twice", name, f"{copies} times in {sent.topic}")
        for queue, found in offsets.items():
            found.sort()
            for before, after in itertools.pairwise(found):
                if after != before + 1:
                    yield Fault("hole", "", f"{queue}: {after} follows {before}")

    def _order_faults(self) -> Iterable[Fault]:
        """Yield keys whose messages lie in another order than they were acknowledged."""
        first: dict[str, Lying] = {}
        for lying in self.lying:
            known = first.get(lying.message_id)
            if known is None or lying.queue_offset < known.queue_offset:
                first[lying.message_id] = lying
        last_of: dict[tuple[str, str], tuple[Sent, Lying]] = {}
        for sent in self.sent.values():
            place = first.get(sent.message_id)
            if not sent.key or place is None:
                continue
            before = last_of.get((sent.topic, sent.key))
            if before is not None and (
                before[1].queue != place.queue or before[1].queue_offset >= place.queue_offset
            ):
                text = f"{place.queue} offset {place.queue_offset}, behind it in sending: "
                yield Fault("reordered", sent.message_id, f"{text}{before[1]}")
            last_of[sent.topic, sent.key] = (sent, place)

    def _group_faults(self, rules: GroupRules) -> Iterable[Fault]:
        mine = [each for each in self.deliveries if each.group == rules.group]
        for delivery in mine:
            yield from self._record_faults(delivery)
            if delivery.message_id in rules.unwanted:
                yield Fault("unwanted", delivery.message_id, f"{rules.group} did not ask for it")
        yield from self._place_faults(mine)
        finished = Counter(each.message_id for each in mine if each.is_finished)
        dead = {each.message_id: each for each in self.dead.get(rules.group, ())}
        yield from self._consumption_faults(rules, finished, dead)
        yield from self._dead_letter_faults(rules, mine, finished, dead)
        repeats = {name: times for name, times in finished.items() if times > 1}
        if rules.redeliveries_max is not None and len(repeats) > rules.redeliveries_max:
            for name, times in repeats.items():
                yield Fault("redelivered", name, f"{times} times to {rules.group}")
        if rules.is_orderly:
            yield from _skips(rules.group, mine)

    def _place_faults(self, mine: Sequence[Delivery]) -> Iterable[Fault]:
        if self.moves_allowed:
            return
        at = {(each.queue, each.queue_offset): each.message_id for each in self.lying}
        for each in mine:
            lies = at.get((each.queue, each.queue_offset))
            if lies is not None and lies != each.message_id:
                text = f"from {each.queue} offset {each.queue_offset}, where {lies} lies"
                yield Fault("moved", each.message_id, text)

    def _consumption_faults(
        self, rules: GroupRules, finished: Counter[str], dead: dict[str, Lying]
    ) -> Iterable[Fault]:
        if not rules.is_whole:
            return
        for lying in self.lying:
            name = lying.message_id
            if name in rules.unwanted:
                continue
            if lying.queue.topic in rules.topics and name not in finished and name not in dead:
                kind = "dead-letter-missing" if name in rules.doomed else "unconsumed"
                yield Fault(kind, name, f"{rules.group}: {lying.queue} {lying.queue_offset}")

    def _dead_letter_faults(
        self,
        rules: GroupRules,
        mine: Sequence[Delivery],
        finished: Counter[str],
        dead: dict[str, Lying],
    ) -> Iterable[Fault]:
        attempts = Counter(each.message_id for each in mine)
        for name in dead:
            if name in finished or name not in rules.doomed:
                why = "the group finished it" if name in finished else "its listener would take it"
                yield Fault("dead-letter-spurious", name, f"{rules.group}: {why}")
            elif attempts[name] < rules.attempts:
                text = f"{rules.group}: {attempts[name]} attempts of {rules.attempts}"
                yield Fault("dead-letter-early", name, text)


def _skips(group: str, mine: Sequence[Delivery]) -> Iterable[Fault]:
    """Yield deliveries of an orderly group that came before what they had to wait for."""
    done: defaultdict[MessageQueue, int] = defaultdict(lambda: -1)
    starts: dict[MessageQueue, int] = {}
    for each in mine:
        least = starts.setdefault(each.queue, each.queue_offset)
        highest = done[each.queue]
        if each.queue_offset > max(highest + 1, least):
            text = f"{group}: {each.queue} offset {each.queue_offset} while at {highest + 1}"
            yield Fault("skipped", each.message_id, text)
        if each.is_finished:
            done[each.queue] = max(highest, each.queue_offset)


def make_body(message_id: str, size: int = 0) -> bytes:
    """Return the body of a message: its id, padded to `size` bytes with what follows from it."""
    head = message_id.encode() + _MARK
    filler = head * (1 + max(size - len(head), 0) // len(head))
    return head + filler[: max(size - len(head), 0)]


def id_of(body: bytes) -> str:
    """Return the id that a body tells; that of a damaged one may be anything."""
    return body.partition(_MARK)[0].decode("utf-8", "replace")
