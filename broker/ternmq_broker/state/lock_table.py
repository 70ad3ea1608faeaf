"""Locks of queues, each with a token. Pure.

Source: RocketMQ `RebalanceLockManager`, which has no tokens.
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

    A token is valid while its lock is held: until the lease ends, or its holder unlocks the queue,
    leaves, or locks the queue again. The token of the next holder is higher. So at most one token
    of a queue is valid at a time. Times are monotonic.

    A lock whose lease has ended is renewed if nobody has used the queue since, since a broker that
    was suspended finds all leases ended. Then the token is valid again.

    Args:
        first_token: Lowest token, above all tokens from before a restart.
        lease_ms: Lifetime of a lock that is not renewed, ms.
    """

    def __init__(self, *, first_token: int, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self.last_token = first_token - 1
        self._groups: dict[str, dict[QueueKey, QueueHolding]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[tuple[QueueKey, int]], *, now_ms: int
    ) -> list[tuple[QueueKey, int]]:
        """Lock queues for a member, or renew its locks; return the locked queues.

        Args:
            group: Group of the member.
            client_id: Id of the member.
            queues: Queues with the tokens of the locks to renew; 0 = a new lock, which also
                replaces a lock of the same member. A renewal fails once `expire` has removed the
                lock, or another caller has used the queue: the old token is invalid for good.
            now_ms: Monotonic clock.

        Returns:
            The locked queues with their tokens, in the order of the request.
        """
        held = self._groups.setdefault(group, {})
        given: list[tuple[QueueKey, int]] = []
        for key, token in queues:
            holding = held.get(key)
            if token:
                if holding is None or (holding.client_id, holding.token) != (client_id, token):
                    continue
                valid = token
            else:
                holding = _live(holding, now_ms)
                if holding is not None and holding.client_id != client_id:
                    continue
                valid = self.last_token = self.last_token + 1
            held[key] = QueueHolding(client_id, valid, now_ms + self.lease_ms)
            given.append((key, valid))
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
        """Return the refusal of a caller with `token`; None when it may use the queue.

        Args:
            group: Group of the caller.
            topic: Topic of the queue.
            queue_id: Id of the queue.
            token: Token of the caller; 0 = none, which is valid for queues without a lock.
            now_ms: Monotonic clock.
        """
        if group not in self._groups and not token:
            return None
        holding = self.holding(group, topic, queue_id, now_ms=now_ms)
        if holding is None and not token:
            self._groups.get(group, {}).pop(QueueKey(topic, queue_id), None)  # not renewed any more
            return None
        if holding is not None and holding.token == token:
            return None
        who = "no client holds it" if holding is None else f"{holding.client_id!r} holds it"
        stale = f"lock token {token} is stale" if token else "the caller has no lock"
        queue = f"group {group!r} at {topic} queue {queue_id}"
        return refusal(ResponseCode.NO_PERMISSION, f"{queue}: {stale}, {who}")

    def holding(self, group: str, topic: str, queue_id: int, *, now_ms: int) -> QueueHolding | None:
        """Return the holding of a queue; None without a lock."""
        return _live(self._groups.get(group, {}).get(QueueKey(topic, queue_id)), now_ms)

    def is_orderly(self, group: str, *, now_ms: int) -> bool:
        """Return whether any queue is locked for a member of `group`."""
        held = self._groups.get(group, {})
        return any(_live(holding, now_ms) is not None for holding in held.values())

    def left(self, client_id: str, group: str | None = None) -> None:
        """Free the queues of a client that left, in all groups or in one group."""
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
        """Remove locks with an expired lease."""
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
