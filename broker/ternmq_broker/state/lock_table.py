"""Locks of queues, each with a token that names the holding. Pure.

Source: RocketMQ `RebalanceLockManager`, which knows no tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ternmq_model.errors import RefusedError, refusal
from ternmq_model.response_code import ResponseCode


class QueueKey(NamedTuple):
    """One queue of this broker."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class QueueHolding:
    """One member's holding of one queue."""

    client_id: str
    token: int
    lease_ends_at_ms: int
    """Monotonic clock."""


class LockTable:
    """The locks of every group on one broker. Owned by the broker's loop.

    A token counts while its lock is held: until the lease ends, its holder gives it back or goes,
    or takes the queue anew. It never counts again, and the next holder's is higher. So of any two
    tokens of a queue at most one is good at a time. Times are monotonic.

    Args:
        first_token: The lowest that may be given; above all that were before a restart.
        lease_ms: Lifetime of a lock that is not renewed, ms.
    """

    def __init__(self, *, first_token: int, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self.last_token = first_token - 1
        self._groups: dict[str, dict[QueueKey, QueueHolding]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[tuple[QueueKey, int]], *, now_ms: int
    ) -> list[tuple[QueueKey, int]]:
        """Lock queues for a member, or renew its locks; return the queues that it holds now.

        Args:
            group: The group that shares the queues.
            client_id: The member.
            queues: Each with the token of the holding to renew; 0 = take the queue. Who takes a
                queue that it holds already begins a new holding. A renewal that comes too late is
                none: what was done under the old token is over.
            now_ms: Monotonic clock.

        Returns:
            The queues with their tokens, in the order asked for. The others are not the member's.
        """
        held = self._groups.setdefault(group, {})
        given: list[tuple[QueueKey, int]] = []
        for key, told in queues:
            holding = _live(held.get(key), now_ms)
            if told:
                if holding is None or (holding.client_id, holding.token) != (client_id, told):
                    continue
                token = told
            else:
                if holding is not None and holding.client_id != client_id:
                    continue
                token = self.last_token = self.last_token + 1
            held[key] = QueueHolding(client_id, token, now_ms + self.lease_ms)
            given.append((key, token))
        if not held:
            del self._groups[group]
        return given

    def unlock(self, group: str, client_id: str, queues: Iterable[tuple[QueueKey, int]]) -> int:
        """Unlock queues of a member; return their number. Stale tokens are skipped."""
        held = self._groups.get(group, {})
        doomed = [
            key
            for key, token in queues
            if (holding := held.get(key)) is not None
            and (holding.client_id, holding.token) == (client_id, token)
        ]
        for key in doomed:
            held.pop(key, None)
        self._drop_if_empty(group)
        return len(doomed)

    def check(
        self, group: str, topic: str, queue_id: int, token: int, *, now_ms: int
    ) -> RefusedError | None:
        """Return why who comes with `token` may not act for the queue; None when it may.

        Args:
            group: For which group.
            topic: The queue's topic.
            queue_id: The queue.
            token: 0 = the caller has no lock. It may act where nobody has one.
            now_ms: Monotonic clock.
        """
        held = self._groups.get(group)
        if held is None and not token:
            return None
        holding = _live((held or {}).get(QueueKey(topic, queue_id)), now_ms)
        if (0 if holding is None else holding.token) == token:
            return None
        who = "nobody holds it" if holding is None else f"{holding.client_id!r} holds it"
        stale = f"lock token {token} is stale" if token else "the caller has no lock"
        queue = f"group {group!r} at {topic} queue {queue_id}"
        return refusal(ResponseCode.NO_PERMISSION, f"{queue}: {stale}, {who}")

    def holding(self, group: str, topic: str, queue_id: int, *, now_ms: int) -> QueueHolding | None:
        """Return who holds a queue, or None."""
        return _live(self._groups.get(group, {}).get(QueueKey(topic, queue_id)), now_ms)

    def is_orderly(self, group: str, *, now_ms: int) -> bool:
        """Return whether any queue is locked for a member of `group`."""
        held = self._groups.get(group, {})
        return any(_live(holding, now_ms) is not None for holding in held.values())

    def left(self, client_id: str, group: str | None = None) -> None:
        """Free what a client held that is gone; in one group alone when that is given."""
        for name in list(self._groups) if group is None else [group]:
            held = self._groups.get(name, {})
            for key in [key for key, each in held.items() if each.client_id == client_id]:
                del held[key]
            self._drop_if_empty(name)

    def remove_topic(self, topic: str) -> None:
        """Free every queue of a topic that is deleted."""
        for name, held in list(self._groups.items()):
            for key in [key for key in held if key.topic == topic]:
                del held[key]
            self._drop_if_empty(name)

    def remove_group(self, group: str) -> None:
        """Free every queue of a group."""
        self._groups.pop(group, None)

    def expire(self, *, now_ms: int) -> None:
        """Forget locks whose lease is over."""
        for name, held in list(self._groups.items()):
            for key in [key for key, each in held.items() if _live(each, now_ms) is None]:
                del held[key]
            self._drop_if_empty(name)

    def _drop_if_empty(self, group: str) -> None:
        if not self._groups.get(group, True):
            del self._groups[group]


def _live(holding: QueueHolding | None, now_ms: int) -> QueueHolding | None:
    """Return the holding while its lease lasts."""
    return None if holding is None or holding.lease_ends_at_ms <= now_ms else holding
