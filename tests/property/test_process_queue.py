"""What may be committed, against a model that remembers every message alone."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ternmq_consumer.process_queue.process_queue import Handout, ProcessQueue
from ternmq_model.offsets import QueueOffset
from tests.support.examples import examples


class Record(NamedTuple):
    queue_offset: QueueOffset
    record_bytes: int


class ProcessQueueMachine(RuleBasedStateMachine):
    """Adds, hands out and finishes at random; the model is a set of unfinished records."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue[Record](QueueOffset(5))
        self.unfinished: set[Record] = set()
        self.read_up_to = QueueOffset(5)
        self.handed_up_to = -1
        self.running: list[Handout[Record]] = []
        self.failed: list[Handout[Record]] = []

    @rule(wanted=st.lists(st.booleans(), max_size=12), record_bytes=st.integers(1, 900))
    def add(self, wanted: list[bool], record_bytes: int) -> None:
        batch = [
            Record(QueueOffset(self.read_up_to + place), record_bytes + place)
            for place, is_wanted in enumerate(wanted)
            if is_wanted
        ]
        self.read_up_to = QueueOffset(self.read_up_to + len(wanted))
        self.queue.add(batch, sum(record.record_bytes for record in batch), self.read_up_to)
        self.unfinished.update(batch)

    @rule(count_max=st.integers(1, 20))
    def take(self, count_max: int) -> None:
        waiting = self.queue.waiting
        handout = self.queue.take(count_max)
        if handout is None:
            assert waiting == 0
            return
        assert len(handout.messages) == min(count_max, waiting)
        offsets = [record.queue_offset for record in handout.messages]
        assert offsets == sorted(offsets)
        assert offsets[0] > self.handed_up_to, "no message is handed out twice"
        self.handed_up_to = offsets[-1]
        self.running.append(handout)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), settle_only=st.booleans())
    def finish(self, data: st.DataObject, settle_only: bool) -> None:
        handout = self.running[data.draw(st.integers(0, len(self.running) - 1))]
        held = list(handout.messages)
        kept = [record for record in held if data.draw(st.booleans())]
        if settle_only and kept:
            done = self.queue.settle(handout, kept)
        else:
            self.running.remove(handout)
            done = self.queue.finish(handout, kept)
            if kept:
                self.failed.append(handout)
        gone = set(held) - set(kept)
        self.unfinished -= gone
        assert done == (len(gone), sum(record.record_bytes for record in gone))

    @precondition(lambda self: self.failed)
    @rule(data=st.data())
    def take_again(self, data: st.DataObject) -> None:
        handout = self.failed.pop(data.draw(st.integers(0, len(self.failed) - 1)))
        self.queue.take_again(handout)
        self.running.append(handout)

    @invariant()
    def the_commit_offset_is_the_lowest_unfinished(self) -> None:
        expected = min((record.queue_offset for record in self.unfinished), default=self.read_up_to)
        assert self.queue.commit_offset == expected
        assert self.queue.span == self.read_up_to - expected

    @invariant()
    def nothing_is_lost_or_counted_twice(self) -> None:
        assert self.queue.count == len(self.unfinished)
        assert self.queue.record_bytes == sum(record.record_bytes for record in self.unfinished)
        assert self.queue.running == len(self.running)


ProcessQueueMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestProcessQueue = ProcessQueueMachine.TestCase
