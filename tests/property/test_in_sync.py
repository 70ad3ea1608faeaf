"""Whatever slaves do, the confirm offset never goes back, and never says more than is true."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ternmq_broker.replication.master.in_sync import EVERYWHERE, FollowerProgress, InSync
from ternmq_model.errors import InvalidParameter
from ternmq_model.offsets import PhysicalOffset

IDS = st.integers(1, 4)
STEPS = st.sampled_from([0, 1, 1000, 1 << 19, 1 << 20, (1 << 20) + 1, 100 << 20, 256 << 20])
TIMEOUT_MS = 3000


class Slaves(RuleBasedStateMachine):
    """A master that appends and flushes, and slaves that come, acknowledge, lie and go."""

    def __init__(self) -> None:
        super().__init__()
        self.end = self.safe = self.confirmed = self.now_ms = 0
        self.streams: dict[int, FollowerProgress] = {}
        self.has: dict[int, int] = {}
        """What is truly on each slave that is connected."""

    @initialize(needed=st.integers(0, 3))
    def begin(self, needed: int) -> None:
        self.needed = needed
        self.in_sync = InSync(needed=needed, slave_timeout_ms=TIMEOUT_MS)

    @rule(count=STEPS)
    def append(self, count: int) -> None:
        self.end += count
        self.look()

    @rule(part=st.floats(0, 1))
    def flush(self, part: float) -> None:
        self.safe += int((self.end - self.safe) * part)
        self.confirm()

    @rule(wait_ms=st.sampled_from([0, 1, 250, TIMEOUT_MS - 1, TIMEOUT_MS]))
    def pass_time(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.look()

    @rule(broker_id=IDS, part=st.floats(0, 1))
    def join(self, broker_id: int, part: float) -> None:
        start = PhysicalOffset(int(self.end * part))
        if broker_id in self.streams:
            return
        self.streams[broker_id] = self.in_sync.join(broker_id, start)
        self.has[broker_id] = 0

    @rule(broker_id=IDS)
    def leave(self, broker_id: int) -> None:
        if broker_id in self.streams:
            self.in_sync.leave(self.streams.pop(broker_id))
            del self.has[broker_id]
            self.confirm()

    @rule(broker_id=IDS, part=st.floats(0, 1))
    def send(self, broker_id: int, part: float) -> None:
        if broker_id in self.streams:
            follower = self.streams[broker_id]
            to = follower.sent + int((self.end - follower.sent) * part)
            self.in_sync.sent(follower, PhysicalOffset(to), now_ms=self.now_ms)

    @rule(broker_id=IDS, part=st.floats(0, 1))
    def acknowledge(self, broker_id: int, part: float) -> None:
        if broker_id in self.streams:
            follower, has = self.streams[broker_id], self.has[broker_id]
            to = has + int((follower.sent - has) * part)
            self.in_sync.acknowledge(
                follower, PhysicalOffset(to), end=PhysicalOffset(self.end), now_ms=self.now_ms
            )
            self.has[broker_id] = to
            self.confirm()

    @rule(broker_id=IDS, beyond=st.integers(1, 1 << 40), is_high=st.booleans())
    def lie(self, broker_id: int, beyond: int, is_high: bool) -> None:
        if broker_id not in self.streams:
            return
        follower = self.streams[broker_id]
        said = follower.sent + beyond if is_high else self.has[broker_id] - beyond
        before = (self.in_sync.replicated_to, self.in_sync.counting, self.in_sync.confirmed)
        try:
            self.in_sync.acknowledge(
                follower, PhysicalOffset(said), end=PhysicalOffset(self.end), now_ms=self.now_ms
            )
            raise AssertionError("it was believed")
        except InvalidParameter:
            now = (self.in_sync.replicated_to, self.in_sync.counting, self.in_sync.confirmed)
            assert now == before

    def look(self) -> None:
        self.in_sync.expire_silent(end=PhysicalOffset(self.end), now_ms=self.now_ms)
        self.confirm()

    def confirm(self) -> None:
        counting = [each for each in self.streams.values() if each.counts_from is not None]
        before = self.confirmed
        self.confirmed = self.in_sync.confirm(PhysicalOffset(self.safe))
        assert before <= self.confirmed <= self.safe
        if self.needed > len(counting) or not self.needed:
            assert self.confirmed == self.safe  # too few count: nobody is waited for
            return
        if self.confirmed > before:
            waited_for = [each for each in counting if (each.counts_from or 0) < self.confirmed]
            has = sum(each.acknowledged >= self.confirmed for each in self.streams.values())
            assert len(waited_for) < self.needed or has >= self.needed

    @invariant()
    def what_is_called_replicated_is(self) -> None:
        if not hasattr(self, "in_sync"):
            return
        if not self.needed:
            assert self.in_sync.replicated_to == EVERYWHERE
            return
        to = self.in_sync.replicated_to
        assert to == 0 or sum(has >= to for has in self.has.values()) >= self.needed
        assert all(each.acknowledged == self.has[each.broker_id] for each in self.in_sync.followers)
        assert self.in_sync.counting == sum(each.counts for each in self.in_sync.followers)


TestSlaves = Slaves.TestCase
