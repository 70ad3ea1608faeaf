"""The in-sync set: slaves that count, and the offset up to which enough have the log. Pure.

    acknowledged by a slave <= sent to it <= end of the master's log
    confirmed               <= safe at the master

A slave counts from the moment it is nearly at the end of the log, and the master waits for it only
from that end on: what came before is confirmed without it. So slaves are waited for from the end
at which as many counted as are needed; one more that begins to count releases nothing of what the
others are still waited for with. While too few count, the master's own disk decides alone; so a
send is told truthfully what it got, by comparing where it ends with `replicated_to`.

Source: RocketMQ `HAService.isSlaveOK`, `GroupTransferService`, `AutoSwitchHAService`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_model.errors import InvalidParameter
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode

NEAR_BYTES: Final = 1 << 20
"""A slave that lacks no more than this begins to count."""

FAR_BYTES: Final = 256 << 20
"""A slave that lacks so much does not count any more. RocketMQ: `haSlaveFallbehindMax`."""

EVERYWHERE: Final = PhysicalOffset((1 << 63) - 1)
"""Replicated offset when no slave has to have anything: everything is replicated."""


@dataclass(slots=True)
class FollowerProgress:
    """Progress of one slave that follows, as its master knows it. Owned by `InSync`."""

    broker_id: int
    start: PhysicalOffset
    """Everything before it was in the slave's log when it joined."""

    sent: PhysicalOffset
    """Everything before it was given to the stream."""

    acknowledged: PhysicalOffset
    """Everything before it is safe at the slave, as it says."""

    counts_from: PhysicalOffset | None = None
    """The end of the log when it began to count; None = it does not."""

    lacks_since_ms: int | None = None
    """Since when it has lacked something without acknowledging anything; None = it lacks nothing
    that is known."""

    @property
    def counts(self) -> bool:
        """The master waits for it."""
        return self.counts_from is not None


class InSync:
    """The followers of one master in one epoch. Owned by the broker's loop.

    Args:
        needed: How many slaves must have what is confirmed; 0 = the master alone confirms.
        slave_timeout_ms: A slave that lacks something and has acknowledged nothing for so long does
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
        """All of them, in the order of their ids."""
        return [self._followers[broker_id] for broker_id in sorted(self._followers)]

    @property
    def confirmed(self) -> PhysicalOffset:
        """Last result of `confirm`."""
        return self._confirmed

    @property
    def is_enough(self) -> bool:
        """As many slaves count as are needed."""
        return self._counting >= self.needed

    @property
    def counting(self) -> int:
        """Number of slaves that count."""
        return self._counting

    @property
    def replicated_to(self) -> PhysicalOffset:
        """Everything before it is safe at as many connected slaves as are needed."""
        return self._replicated_to

    def join(self, broker_id: int, start: PhysicalOffset) -> FollowerProgress:
        """Take in a slave that is given the log from `start` on. Nothing is known to be safe there.

        Raises:
            InvalidParameter: One of that id follows already.
        """
        if broker_id in self._followers:
            raise _invalid(f"a slave with id {broker_id} follows already")
        follower = FollowerProgress(broker_id, start, start, PhysicalOffset(0))
        self._followers[broker_id] = follower
        return follower

    def leave(self, follower: FollowerProgress) -> None:
        """Forget a slave, whose stream has ended; nothing when another one has its place."""
        if self._followers.get(follower.broker_id) is not follower:
            return
        del self._followers[follower.broker_id]
        if follower.counts_from is not None:
            follower.counts_from = None
            self._count()
        self._replicate()

    def sent(self, follower: FollowerProgress, to: PhysicalOffset, *, now_ms: int) -> None:
        """Take note that everything before `to` is on its way to the slave."""
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
        """Believe a slave that everything before `offset` is safe there.

        Args:
            follower: Who says so.
            offset: Of the log.
            end: Where the master's log ends.
            now_ms: The monotonic clock.

        Returns:
            Whether it begins to count with that.

        Raises:
            InvalidParameter: That cannot be: it was not sent so much, or has said more before.
                Nothing has changed.
        """
        if offset > follower.sent:
            raise _invalid(
                f"slave {follower.broker_id} acknowledges {offset}, but was sent the log only to"
                f" {follower.sent}"
            )
        if offset < follower.acknowledged:
            raise _invalid(
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
            return False  # it repeats itself: one that fell silent does not count again by that
        if follower.counts_from is not None or end - offset > NEAR_BYTES:
            return False
        follower.counts_from = end
        self._count()
        return True

    def look(self, *, end: PhysicalOffset, now_ms: int) -> Sequence[FollowerProgress]:
        """Let slaves that fell silent or far behind count no more.

        Returns:
            Those that ceased to count with that.
        """
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
        """Return up to where the log counts as stored. It never goes back.

        Args:
            safe: Up to where the master's own copy is safe.
        """
        if self.needed:
            safe = min(safe, max(self._waits_from, self._replicated_to))
        self._confirmed = max(self._confirmed, safe)
        return self._confirmed

    def _is_silent(self, follower: FollowerProgress, now_ms: int) -> bool:
        since_ms = follower.lacks_since_ms
        return since_ms is not None and now_ms - since_ms >= self.slave_timeout_ms

    def _count(self) -> None:
        """Find who counts, and from where on as many do as are needed."""
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


def _invalid(remark: str) -> InvalidParameter:
    return InvalidParameter(ResponseCode.INVALID_PARAMETER, remark)
