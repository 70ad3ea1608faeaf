"""Versions of offsets, and the bound of lock tokens: both keep stale consumers out.

Their file is separate, because RocketMQ owns the format of `consumerOffset.json`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from ternmq_broker.state.fastjson import as_int
from ternmq_model.json_checksum import as_object

VERSION_MAX: Final = (1 << 62) - 1
VERSION_STEP_MAX: Final = 10**9
"""Limit by which a version may exceed the stored one: a crash loses far fewer."""

TOKENS_PER_MS: Final = 1 << 20
_SEPARATOR: Final = "@"
_RESERVE: Final = 1 << 20


class OffsetVersions:
    """Number of resets and seeks of each offset. Owned by the broker's loop.

    A queue without an offset has version 0 and no entry. Names of topics and groups have no `@`, so
    the keys of the file are never ambiguous.

    Attributes:
        changes: Number of changes; a save is due when it differs from the saved one.
        tokens_end: Upper bound of all lock tokens, saved so that tokens rise across restarts even
            when the wall clock goes back.
    """

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], dict[int, int]] = {}
        self.changes = 0
        self.tokens_end = 0

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset's version."""
        return self._versions.get((topic, group), {}).get(queue_id, 0)

    def is_believed(self, group: str, topic: str, queue_id: int, version: int) -> bool:
        """Return whether resets and seeks can have led to a reported version.

        A made-up version would refuse all commits under the stored one for ever.
        """
        kept = self.get(group, topic, queue_id)
        return 0 <= version <= min(kept + VERSION_STEP_MAX, VERSION_MAX)

    def next(self, group: str, topic: str, queue_id: int, known: int = 0) -> int:
        """Return the version after one more reset or seek, at most the highest of the file format.

        Args:
            group: Name of the consumer group.
            topic: Topic of the queue.
            queue_id: Number of the queue.
            known: Version that the consumer knows, which a crash may have lost here.
        """
        return min(max(known, self.get(group, topic, queue_id)) + 1, VERSION_MAX)

    def put(self, group: str, topic: str, queue_id: int, version: int) -> None:
        """Store a version, which the caller may know to be higher than the previous one."""
        self._versions.setdefault((topic, group), {})[queue_id] = version
        self.changes += 1

    def remove_queue(self, group: str, topic: str, queue_id: int) -> None:
        """Remove one version."""
        queues = self._versions.get((topic, group), {})
        if queues.pop(queue_id, None) is not None:
            self.changes += 1
        if not queues:
            self._versions.pop((topic, group), None)

    def remove_topic(self, topic: str) -> None:
        """Remove the versions of every group in `topic`."""
        self._remove(lambda key: key[0] == topic)

    def remove_group(self, group: str) -> None:
        """Remove the versions of `group` in every topic."""
        self._remove(lambda key: key[1] == group)

    def forget(self) -> None:
        """Remove every version."""
        self._remove(lambda _: True)

    def keep_topics(self, is_there: Callable[[str], bool]) -> None:
        """Remove the versions in missing topics."""
        self._remove(lambda key: not is_there(key[0]))

    def _remove(self, is_doomed: Callable[[tuple[str, str]], bool]) -> None:
        for key in [key for key in self._versions if is_doomed(key)]:
            del self._versions[key]
            self.changes += 1

    def first_token(self, *, now_ms: int) -> int:
        """Return the lowest token for a broker that starts now, and reserve the next tokens.

        Args:
            now_ms: Wall clock.
        """
        first = max(now_ms * TOKENS_PER_MS, self.tokens_end + 1)
        self.reserve_tokens(first)
        return first

    def reserve_tokens(self, through: int) -> None:
        """Record that tokens up to `through` are assigned; more are reserved well before."""
        if through + _RESERVE // 2 > self.tokens_end:
            self.tokens_end = through + _RESERVE
            self.changes += 1

    def raise_tokens(self, end: int) -> None:
        """Record that another member may have assigned tokens up to `end`."""
        if end > self.tokens_end:
            self.tokens_end = end
            self.changes += 1

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        versions = {
            topic + _SEPARATOR + group: {str(queue): kept for queue, kept in sorted(queues.items())}
            for (topic, group), queues in self._versions.items()
        }
        return {"lockTokensEnd": self.tokens_end, "versionTable": versions}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Return the table in the content of the file.

        Raises:
            ValueError: A member has another type. An unknown version is never taken for 0.
        """
        table = cls()
        table.tokens_end = as_int(value.get("lockTokensEnd", 0), "lockTokensEnd")
        if table.tokens_end < 0:
            raise ValueError(f"lockTokensEnd is {table.tokens_end}")
        for key, queues in as_object(value.get("versionTable", {}), "versionTable").items():
            topic, separator, group = key.partition(_SEPARATOR)
            if not (topic and separator and group) or _SEPARATOR in group:
                raise ValueError(f"versions of {key!r}: the key must be topic@group")
            kept = table._versions[topic, group] = {}
            for queue_id, version in as_object(queues, key).items():
                number = as_int(version, f"version of {key} queue {queue_id}")
                if int(queue_id) < 0 or not 0 <= number < 1 << 63:
                    raise ValueError(f"versions of {key!r}: queue {queue_id} has {number}")
                # Older programs continued to count from made-up versions.
                kept[int(queue_id)] = min(number, VERSION_MAX)
        return table
