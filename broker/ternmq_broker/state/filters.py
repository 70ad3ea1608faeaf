"""The filter expressions of consumer groups. Pure.

Source: RocketMQ `ConsumerFilterManager`, `ConsumerFilterData`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, cast

from ternmq_broker.state.fastjson import as_int
from ternmq_model.bloom_filter import BloomFilter
from ternmq_model.json_checksum import as_object
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.subscription import Subscription

BLOOM: Final = BloomFilter()
"""With RocketMQ's defaults: 3 bits of 112 for a group."""

DEAD_FILTER_MS: Final = 24 * 3_600_000
"""Lifetime of an unused condition."""

AHEAD_MAX_MS: Final = 24 * 3_600_000
"""Limit by which the clock of a version may be ahead of the broker's."""

_DEAD_BEFORE_LOAD_MS: Final = 30_000

_NOWHERE: Final = PhysicalOffset(1 << 62)

_KNOWN: Final = (
    "bloomFilterData", "bornTime", "clientVersion", "consumerGroup", "deadTime", "expression",
    "expressionType", "topic",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """Filter expression of one group for one topic."""

    topic: str
    group: str
    expression: str
    expression_type: str
    """Such as `SQL92`."""

    client_version: int
    born_at_ms: int
    dead_at_ms: int
    """Time at which the group stopped using the filter; 0 = the filter is in use."""

    bloom_bits: int = 0
    """Length of the bit maps that `bloom_positions` index; 0 = no bit maps."""

    bloom_positions: Sequence[int] = ()
    """Bits that are set in the bit map of every message that matches the expression."""

    begin: PhysicalOffset = _NOWHERE
    """Log offset from which bit maps of messages include this filter. Not stored in the file."""


class FilterTable:
    """Every filter, by topic and group. Owned by the broker's loop.

    Members of the file that `ConsumerFilter` lacks are written back unchanged.

    Attributes:
        changes: Number of changes; a save is due when it differs from the saved one.
    """

    def __init__(self) -> None:
        self._filters: dict[tuple[str, str], ConsumerFilter] = {}
        self._alive: dict[str, list[ConsumerFilter]] | None = {}
        """Filters in use, by topic; None = not computed."""
        self._extras: dict[tuple[str, str], dict[str, Any]] = {}
        self._table_extras: dict[str, Any] = {}
        self.changes = 0

    def __iter__(self) -> Iterator[ConsumerFilter]:
        """Yield every filter, sorted by topic and group."""
        return iter([self._filters[key] for key in sorted(self._filters)])

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return the filter of a group, or None when it has none."""
        return self._filters.get((topic, group))

    def put(self, one: ConsumerFilter) -> None:
        """Store a filter in place of the one that the group had for the topic."""
        key = (one.topic, one.group)
        if self._filters.get(key) != one:
            self._filters[key] = one
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._alive = None

    def alive(self, topic: str) -> Sequence[ConsumerFilter]:
        """Return the filters of `topic` that are in use."""
        if self._alive is None:
            self._alive = {}
            for one in self:
                if not one.dead_at_ms:
                    self._alive.setdefault(one.topic, []).append(one)
        return self._alive.get(topic, ())

    def register(
        self,
        group: str,
        subscriptions: Iterable[Subscription],
        *,
        now_ms: int,
        log_end: PhysicalOffset,
    ) -> None:
        """Store all conditions that a group uses now; its other filters become dead.

        A changed or revived condition is born now: bit maps of earlier messages do not include it.

        Args:
            group: Name of the group.
            subscriptions: Subscriptions of type SQL92, at most one for a topic.
            now_ms: Wall clock.
            log_end: End of the log.
        """
        used: set[str] = set()
        for subscription in subscriptions:
            used.add(subscription.topic)
            known = self._filters.get((subscription.topic, group))
            if known is not None and subscription.version_ms < _newest(known, now_ms):
                continue  # a newer one is stored
            if known is not None and not known.dead_at_ms and _is_of(known, subscription):
                self.put(replace(known, client_version=subscription.version_ms))
                continue
            self.put(
                ConsumerFilter(
                    subscription.topic,
                    group,
                    subscription.expression,
                    subscription.expression_type,
                    subscription.version_ms,
                    born_at_ms=now_ms,
                    dead_at_ms=0,
                    bloom_bits=BLOOM.bits,
                    bloom_positions=tuple(BLOOM.positions(group, subscription.topic)),
                    begin=log_end,
                )
            )
        for one in list(self._filters.values()):
            if one.group == group and one.topic not in used and not one.dead_at_ms:
                self.put(replace(one, dead_at_ms=now_ms))

    def clean(self, *, now_ms: int) -> Sequence[ConsumerFilter]:
        """Remove and return the filters that have been dead for a day."""
        old = [one for one in self if one.dead_at_ms and now_ms - one.dead_at_ms >= DEAD_FILTER_MS]
        self._forget(old)
        return old

    def remove_topic(self, topic: str) -> None:
        """Remove the filters of all groups for a deleted topic."""
        self._forget([one for one in self if one.topic == topic])

    def remove_group(self, group: str) -> None:
        """Remove all filters of a deleted group."""
        self._forget([one for one in self if one.group == group])

    def copy(self) -> Self:
        """Return the table as it is now, for another thread to read."""
        copied = type(self)()
        copied._filters, copied._extras = dict(self._filters), dict(self._extras)
        copied._table_extras, copied._alive = self._table_extras, None
        return copied

    def take_over(self, other: Self, *, now_ms: int, log_end: PhysicalOffset) -> None:
        """Copy the conditions of another table where they differ.

        A new condition is born now: bit maps of messages that are already readable here do not
        include it.

        Args:
            other: Table of the master.
            now_ms: Wall clock.
            log_end: End of the log here.
        """
        for one in other:
            known = self._filters.get((one.topic, one.group))
            if known is not None and one.client_version < _newest(known, now_ms):
                continue
            if known is not None and _is_same(known, one):
                self.put(replace(known, client_version=one.client_version))
                continue
            self.put(replace(one, born_at_ms=max(one.born_at_ms, now_ms), begin=log_end))

    def all_dead(self, *, now_ms: int) -> None:
        """Mark all filters as dead after a start, until groups subscribe with them again."""
        for one in self:
            if not one.dead_at_ms:
                dead_at_ms = max(one.born_at_ms, now_ms - _DEAD_BEFORE_LOAD_MS)
                self.put(replace(one, dead_at_ms=dead_at_ms))

    def _forget(self, gone: Sequence[ConsumerFilter]) -> None:
        for one in gone:
            del self._filters[one.topic, one.group]
            self._extras.pop((one.topic, one.group), None)
            self._changed()

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `consumerFilter.json`."""
        topics: dict[str, dict[str, Any]] = {}
        for one in self:
            topic = topics.setdefault(one.topic, {"groupFilterData": {}, "topic": one.topic})
            entry = self._extras.get((one.topic, one.group), {}) | {
                "bornTime": one.born_at_ms,
                "clientVersion": one.client_version,
                "consumerGroup": one.group,
                "deadTime": one.dead_at_ms,
                "expression": one.expression,
                "expressionType": one.expression_type,
                "topic": one.topic,
            }
            if one.bloom_bits:
                bloom = {"bitNum": one.bloom_bits, "bitPos": list(one.bloom_positions)}
                entry["bloomFilterData"] = bloom
            topic["groupFilterData"][one.group] = entry
        return {**self._table_extras, "filterDataByTopic": topics}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Return the table in the content of `consumerFilter.json`.

        Raises:
            ValueError: A member has another type.
        """
        table = cls()
        topics = as_object(value.get("filterDataByTopic", {}), "filterDataByTopic")
        for topic, of_topic in topics.items():
            groups: object = as_object(of_topic, topic).get("groupFilterData", {})
            for group, entry in as_object(groups, f"groupFilterData of {topic}").items():
                fields = as_object(entry, f"filter of {topic} {group}")
                table._filters[topic, group] = _filter(topic, group, fields)
                extras = {name: fields[name] for name in fields if name not in _KNOWN}
                table._extras[topic, group] = extras
        table._table_extras = {name: value[name] for name in value if name != "filterDataByTopic"}
        table._alive = None
        return table


def _newest(known: ConsumerFilter, now_ms: int) -> int:
    """Return the version below which a reported filter is older than `known`.

    A version is the wall clock of a client. A version too far ahead counts as 0: otherwise no later
    filter could replace it.
    """
    is_made_up = known.client_version > now_ms + AHEAD_MAX_MS
    return 0 if is_made_up else known.client_version


def _is_same(known: ConsumerFilter, reported: ConsumerFilter) -> bool:
    """Return whether two filters have equal conditions, and are both used or both dead."""
    other = replace(reported, born_at_ms=known.born_at_ms, begin=known.begin)
    other = replace(other, client_version=known.client_version)
    is_alike = bool(known.dead_at_ms) == bool(reported.dead_at_ms)
    return is_alike and replace(other, dead_at_ms=known.dead_at_ms) == known


def _is_of(known: ConsumerFilter, subscription: Subscription) -> bool:
    """Return whether a stored filter equals the condition of a group, with valid bits."""
    what = (subscription.expression, subscription.expression_type, BLOOM.bits)
    return (known.expression, known.expression_type, known.bloom_bits) == what


def _filter(topic: str, group: str, fields: Mapping[str, Any]) -> ConsumerFilter:
    name = f"filter of {topic} {group}"
    bloom = as_object(fields.get("bloomFilterData") or {}, f"bloom of {name}")
    positions: object = bloom.get("bitPos", [])
    if not isinstance(positions, list):
        raise ValueError(f"bitPos of {name} is {positions!r}, not a list")
    places = cast("list[object]", positions)
    return ConsumerFilter(
        topic,
        group,
        str(fields.get("expression") or ""),
        str(fields.get("expressionType") or ""),
        as_int(fields.get("clientVersion", 0), f"clientVersion of {name}"),
        as_int(fields.get("bornTime", 0), f"bornTime of {name}"),
        as_int(fields.get("deadTime", 0), f"deadTime of {name}"),
        as_int(bloom.get("bitNum", 0), f"bitNum of {name}"),
        tuple(as_int(position, f"bitPos of {name}") for position in places),
    )
