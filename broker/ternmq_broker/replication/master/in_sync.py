"""The in-sync set: slaves that count, and the replicated offset. Pure.

    acknowledged by a slave <= sent to it <= end of the master's log
    confirmed               <= safe at the master

A slave counts from the moment at which it is nearly at the end of the log, and the master waits
for it only from that end on: earlier bytes are confirmed without it. So the master waits for slaves
from the end at which as many counted as are needed; one more slave that begins to count confirms no
byte that the others still lack. While too few slaves count, the master's own disk decides alone;
the status of a send is still true, since it compares the end of the message with `replicated_to`.

Source: RocketMQ `HAService.isSlaveOK`, `GroupTransferService`, `AutoSwitchHAService`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_model.errors import invalid
from ternmq_model.offsets import PhysicalOffset

NEAR_BYTES: Final = 1 << 20
"""Most bytes that a slave may lack when it begins to count."""

FAR_BYTES: Final = 256 << 20
"""Bytes that a slave lacks when it stops to count. RocketMQ: `haSlaveFallbehindMax`."""

EVERYWHERE: Final = PhysicalOffset((1 << 63) - 1)
"""Replicated offset of a master that needs no slaves."""


@dataclass(slots=True)
class FollowerProgress:
    """Progress of one slave, as its master knows it. Owned by `InSync`."""

    broker_id: int
    start: PhysicalOffset
    """End of the slave's log when it joined."""

    sent: PhysicalOffset
    """End of the bytes that were given to the stream."""

    acknowledged: PhysicalOffset
    """End of the bytes that are safe at the slave, as the slave reports it."""

    counts_from: PhysicalOffset | None = None
    """End of the log when the slave began to count; None = it does not count."""

    lacks_since_ms: int | None = None
    """Time since which the slave lacks bytes and acknowledges none; None = it lacks no bytes."""

    @property
    def safe_offset(self) -> PhysicalOffset:
        """End of the bytes that are safe at the slave, those from before it joined included."""
        return max(self.acknowledged, self.start)

    @property
    def counts(self) -> bool:
        """True when the master waits for this slave."""
        return self.counts_from is not None


class InSync:
    """Followers of one master in one epoch. Owned by the broker's loop.

    Args:
        needed: Number of slaves that must have a byte before it is confirmed; 0 = the master alone
            confirms.
        slave_timeout_ms: Time without an acknowledgement after which a slave that lacks bytes does
            not count any more.
    """

    def __init__(self, *, needed: int, slave_timeout_ms: int) -> None:
        self.needed = needed
        self.slave_timeout_ms = slave_timeout_ms
        self._followers: dict[int, FollowerProgress] = {}
        self._counting = 0
        self._waits_from = EVERYWHERE
        self._confirmed = PhysicalOffset(0)
        self._replicated_to = PhysicalOffset(0) if needed else EVERYWHERE

    @property
    def followers(self) -> Sequence[FollowerProgress]:
        """All followers, by id."""
        return [self._followers[broker_id] for broker_id in sorted(self._followers)]

    @property
    def confirmed(self) -> PhysicalOffset:
        """Confirm offset, as `confirm` returned it last."""
        return self._confirmed

    @property
    def is_enough(self) -> bool:
        """True when as many slaves count as are needed."""
        return self._counting >= self.needed

    @property
    def counting(self) -> int:
        """Number of slaves that count."""
        return self._counting

    @property
    def replicated_to(self) -> PhysicalOffset:
        """End of the bytes that are safe at as many connected slaves as are needed."""
        return self._replicated_to

    def join(self, broker_id: int, start: PhysicalOffset) -> FollowerProgress:
        """Add a slave that receives the log from `start` on; no byte is known to be safe there.

        Raises:
            InvalidParameter: A slave with that id follows already.
        """
        if broker_id in self._followers:
            raise invalid(f"a slave with id {broker_id} follows already")
        follower = FollowerProgress(broker_id, start, start, PhysicalOffset(0))
        self._followers[broker_id] = follower
        return follower

    def leave(self, follower: FollowerProgress) -> None:
        """Remove a slave whose stream has ended, unless another stream has replaced it."""
        if self._followers.get(follower.broker_id) is not follower:
            return
        del self._followers[follower.broker_id]
        if follower.counts_from is not None:
            follower.counts_from = None
            self._count()
        self._replicate()

    def sent(self, follower: FollowerProgress, to: PhysicalOffset, *, now_ms: int) -> None:
        """Record that all bytes before `to` are on their way to the slave."""
        follower.sent = to
        if follower.lacks_since_ms is None:
            follower.lacks_since_ms = now_ms

    def acknowledge(
        self,
        follower: FollowerProgress,
        offset: PhysicalOffset,
        *,
        end: PhysicalOffset,
        now_ms: int,
    ) -> bool:
        """Record that all bytes before `offset` are safe at a slave.

        Returns:
            True when the slave begins to count.

        Raises:
            InvalidParameter: The offset was not sent yet, or a higher one was acknowledged before.
                Nothing has changed.
        """
        if offset > follower.sent:
            raise invalid(
                f"slave {follower.broker_id} acknowledges {offset}, but was sent the log only to"
                f" {follower.sent}"
            )
        if offset < follower.acknowledged:
            raise invalid(
                f"slave {follower.broker_id} acknowledges {offset}, but has acknowledged"
                f" {follower.acknowledged} before"
            )
        if offset > follower.acknowledged:
            follower.acknowledged = offset
            follower.lacks_since_ms = None if offset == end else now_ms
            self._replicate()
        elif offset == end:
            follower.lacks_since_ms = None
        elif follower.counts_from is None:
            return False  # a repeated acknowledgement: a silent slave does not count again
        if follower.counts_from is not None or end - offset > NEAR_BYTES:
            return False
        follower.counts_from = end
        self._count()
        return True

    def expire_silent(self, *, end: PhysicalOffset, now_ms: int) -> Sequence[FollowerProgress]:
        """Return the slaves that do not count any more because they are silent or far behind."""
        ceased: list[FollowerProgress] = []
        for follower in self._followers.values():
            lacks = end - follower.acknowledged
            if lacks and follower.lacks_since_ms is None:
                follower.lacks_since_ms = now_ms
            if follower.counts_from is not None and (
                lacks >= FAR_BYTES or self._is_silent(follower, now_ms)
            ):
                follower.counts_from = None
                ceased.append(follower)
        if ceased:
            self._count()
        return ceased

    def confirm(self, safe: PhysicalOffset) -> PhysicalOffset:
        """Return the confirm offset, which never decreases."""
        if self.needed:
            safe = min(safe, max(self._waits_from, self._replicated_to))
        self._confirmed = max(self._confirmed, safe)
        return self._confirmed

    def _is_silent(self, follower: FollowerProgress, now_ms: int) -> bool:
        since_ms = follower.lacks_since_ms
        return since_ms is not None and now_ms - since_ms >= self.slave_timeout_ms

    def _count(self) -> None:
        """Update the number of slaves that count, and the offset from which the master waits."""
        counts_from = [
            each.counts_from for each in self._followers.values() if each.counts_from is not None
        ]
        self._counting = len(counts_from)
        if self.needed:
            is_enough = self._counting >= self.needed
            self._waits_from = sorted(counts_from)[self.needed - 1] if is_enough else EVERYWHERE

    def _replicate(self) -> None:
        if self.needed:
            held = [each.acknowledged for each in self._followers.values()]
            enough = len(held) >= self.needed
            self._replicated_to = sorted(held)[-self.needed] if enough else PhysicalOffset(0)
