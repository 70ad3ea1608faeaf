"""The settings of consumer groups, which are created on first use. Pure.

Source: RocketMQ `SubscriptionGroupManager`, `SubscriptionGroupConfig`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from ternmq_broker.state.fastjson import as_int, version_from_dict, version_to_dict
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import refusal
from ternmq_model.group_settings import GroupSettings
from ternmq_model.json_checksum import as_object
from ternmq_model.names import check_group, check_new_name, check_stored_group, is_legal
from ternmq_model.response_code import ResponseCode

_DEFAULTS: Mapping[str, Any] = {
    "attributes": {},
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
}
_FROM_MIN: Final = "ternmq.consume.from.min"
"""Key among the attributes of a group. RocketMQ's own `consumeFromMinEnable` is true by default and
has no effect."""

GROUPS_MAX: Final = 65_536
"""Limit of one broker, since any client creates groups by using them."""

RETRY_QUEUES_MAX: Final = 64
RETRIES_MAX: Final = 65_536
BROKER_ID_MAX: Final = 65_535


def check_settings(settings: GroupSettings) -> GroupSettings:
    """Return settings that a group can have.

    Raises:
        IllegalName: The group's name is illegal.
        InvalidParameter: A number is out of bounds; names the number.
    """
    check_stored_group(settings.group)
    for name, value, most in (
        ("retry_queues", settings.retry_queues, RETRY_QUEUES_MAX),
        ("retries_max", settings.retries_max, RETRIES_MAX),
        ("broker_id", settings.broker_id, BROKER_ID_MAX),
        ("broker_id_when_slow", settings.broker_id_when_slow, BROKER_ID_MAX),
    ):
        if not 0 <= value <= most:
            remark = f"group {settings.group!r}: {name} is {value}; must be 0 to {most}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
    return settings


class GroupTable:
    """The settings of every group of one broker. Owned by the broker's loop.

    Members of the file that `GroupSettings` lacks are written back unchanged.

    Attributes:
        allows_dots: True when new names of groups may contain dots.
        odd: Entries of the file under illegal names, which RocketMQ accepts from operators. They
            are unused, and are written back unchanged.
    """

    def __init__(self, version: DataVersion) -> None:
        self.allows_dots = False
        self.odd: Mapping[str, Any] = {}
        self._version = version
        self._groups: dict[str, GroupSettings] = {}
        self._extras: dict[str, dict[str, Any]] = {}
        self._table_extras: dict[str, Any] = {"forbiddenTable": {}}
        self._shared: frozenset[str] = frozenset()
        """Groups of the loaded file or of the master; other groups were created here."""

    def __iter__(self) -> Iterator[GroupSettings]:
        """Yield every group, sorted by name."""
        return iter([self._groups[name] for name in sorted(self._groups)])

    @property
    def version(self) -> DataVersion:
        """Raised with every change."""
        return self._version

    def get(self, group: str) -> GroupSettings | None:
        """Return the settings of a group; None before its first use."""
        return self._groups.get(group)

    def notifies_members(self, group: str) -> bool:
        """Return whether members of a group are notified of changes in the membership."""
        known = self._groups.get(group)
        return known is None or known.notify_members_changed

    def use(self, group: str, *, now_ms: int) -> GroupSettings:
        """Return the settings of a group, created if they are missing.

        Raises:
            IllegalName: The name is illegal; nothing changes.
            RefusedError: The group is new, and the table is full.
        """
        known = self._groups.get(group)
        if known is None:
            known = GroupSettings(check_group(group))
            self._check_new(group)
            self._groups[group] = known
            self._version = self._version.next(now_ms)
        return known

    def put(self, settings: GroupSettings, *, now_ms: int) -> bool:
        """Create a group or change its settings; return whether it is new.

        Raises:
            TernError: An error of `check_settings`, or of `use` for a new group; nothing changes.
        """
        check_settings(settings)
        known = self._groups.get(settings.group)
        if known is None:
            check_group(settings.group)
            self._check_new(settings.group)
        if known != settings:
            self._groups[settings.group] = settings
            self._version = self._version.next(now_ms)
        return known is None

    def _check_new(self, group: str) -> None:
        check_new_name("group", group, allows_dots=self.allows_dots)
        if len(self._groups) >= GROUPS_MAX:
            remark = f"group {group!r} does not fit: a broker has at most {GROUPS_MAX} groups"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    def remove(self, group: str, *, now_ms: int) -> bool:
        """Remove the settings of a group; return whether there were any."""
        if self._groups.pop(group, None) is None:
            return False
        self._extras.pop(group, None)
        self._version = self._version.next(now_ms)
        return True

    def copy(self) -> Self:
        """Return the table as it is now, for another thread to read."""
        copied = type(self)(self._version)
        copied._groups, copied._extras = dict(self._groups), dict(self._extras)
        copied._table_extras, copied._shared = self._table_extras, self._shared
        copied.odd = self.odd
        return copied

    def take_over(self, other: Self) -> Sequence[str]:
        """Replace the content by that of another table; return the removed groups.

        Groups that were created here stay, since the other table may not know them yet.

        Args:
            other: Table of the master, which must not be used afterwards.
        """
        gone = [each for each in self._groups if each in self._shared and each not in other._groups]
        own = {each: self._groups[each] for each in self._groups if each not in self._shared}
        self._shared = frozenset(other._groups)
        self._groups = own | other._groups
        self._version, self._extras = other._version, other._extras
        self._table_extras, self.odd = other._table_extras, other.odd
        return gone

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `subscriptionGroup.json`."""
        table = {
            each.group: {
                **_DEFAULTS,
                **self._extras.get(each.group, {}),
                "attributes": self._attributes(each),
                "brokerId": each.broker_id,
                "consumeBroadcastEnable": each.broadcast_enabled,
                "consumeEnable": each.consume_enabled,
                "groupName": each.group,
                "notifyConsumerIdsChangedEnable": each.notify_members_changed,
                "retryMaxTimes": each.retries_max,
                "retryQueueNums": each.retry_queues,
                "whichBrokerWhenConsumeSlowly": each.broker_id_when_slow,
            }
            for each in self
        }
        return {
            **self._table_extras,
            "dataVersion": version_to_dict(self._version),
            "subscriptionGroupTable": {**self.odd, **table},
        }

    def _attributes(self, settings: GroupSettings) -> dict[str, Any]:
        attributes = dict(self._extras.get(settings.group, {}).get("attributes") or {})
        attributes.pop(_FROM_MIN, None)
        if settings.consume_from_min_enabled:
            attributes[_FROM_MIN] = "true"
        return attributes

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], now_ms: int) -> Self:
        """Return the table in the content of `subscriptionGroup.json`.

        Raises:
            ValueError: A member has another type.
        """
        table = cls(version_from_dict(value.get("dataVersion"), now_ms=now_ms))
        known = ("dataVersion", "subscriptionGroupTable")
        table._table_extras |= {name: value[name] for name in value if name not in known}
        as_object(value.get("forbiddenTable") or {}, "forbiddenTable")
        entries = as_object(value.get("subscriptionGroupTable", {}), "subscriptionGroupTable")
        table.odd = {
            name: entries[name] for name in entries if not is_legal(check_stored_group, name)
        }
        for name, entry in entries.items():
            if name in table.odd:
                continue
            fields = as_object(entry, name)
            table._groups[name] = _settings(name, fields)
            table._extras[name] = dict(fields)
        table._shared = frozenset(table._groups)
        return table


def _settings(name: str, fields: Mapping[str, Any]) -> GroupSettings:
    def number(field: str, default: int) -> int:
        return as_int(fields.get(field, default), f"{field} of {name}")

    attributes = as_object(fields.get("attributes") or {}, f"attributes of {name}")
    return GroupSettings(
        name,
        bool(fields.get("consumeEnable", True)),
        bool(fields.get("consumeBroadcastEnable", True)),
        attributes.get(_FROM_MIN) == "true",
        number("retryQueueNums", 1),
        number("retryMaxTimes", 16),
        number("brokerId", 0),
        number("whichBrokerWhenConsumeSlowly", 1),
        bool(fields.get("notifyConsumerIdsChangedEnable", True)),
    )
