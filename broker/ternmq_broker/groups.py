"""The settings of consumer groups, which come into being on first use. Pure.

Source: RocketMQ `SubscriptionGroupManager`, `SubscriptionGroupConfig`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from ternmq_broker.loose_json import as_object, version_from_dict, version_to_dict
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import IllegalName
from ternmq_model.names import check_group

_DEFAULTS: Mapping[str, Any] = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """What a consumer group may do here."""

    group: str
    consume_enabled: bool = True
    broadcast_enabled: bool = True


class GroupTable:
    """The settings of every group of one broker. Owned by the broker's loop.

    What a file keeps beyond `SubscriptionGroup` is written back unchanged.
    """

    def __init__(self, version: DataVersion) -> None:
        self._version = version
        self._groups: dict[str, SubscriptionGroup] = {}
        self._extras: dict[str, dict[str, Any]] = {}
        self._table_extras: dict[str, Any] = {"forbiddenTable": {}}

    def __iter__(self) -> Iterator[SubscriptionGroup]:
        """Yield every group, sorted by name."""
        return iter([self._groups[name] for name in sorted(self._groups)])

    @property
    def version(self) -> DataVersion:
        """Raised with every change."""
        return self._version

    def get(self, group: str) -> SubscriptionGroup | None:
        """Return the group's settings, or None when nobody used it yet."""
        return self._groups.get(group)

    def use(self, group: str, *, now_ms: int) -> SubscriptionGroup:
        """Return the group's settings; they come into being here.

        Raises:
            IllegalName: The name is illegal; nothing changes.
        """
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = SubscriptionGroup(check_group(group))
            self._version = self._version.next(now_ms)
        return known

    def to_dict(self) -> dict[str, Any]:
        """Return the table as `subscriptionGroup.json` keeps it."""
        table = {
            each.group: {
                **_DEFAULTS,
                **self._extras.get(each.group, {}),
                "groupName": each.group,
                "consumeEnable": each.consume_enabled,
                "consumeBroadcastEnable": each.broadcast_enabled,
            }
            for each in self
        }
        return {
            **self._table_extras,
            "dataVersion": version_to_dict(self._version),
            "subscriptionGroupTable": table,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, now_ms: int) -> Self:
        """Return the table that `subscriptionGroup.json` keeps.

        Raises:
            ValueError: Something in it has another shape, or is no legal group.
        """
        table = cls(version_from_dict(value.get("dataVersion"), now_ms=now_ms))
        known = ("dataVersion", "subscriptionGroupTable")
        table._table_extras |= {name: value[name] for name in value if name not in known}
        as_object(value.get("forbiddenTable") or {}, "forbiddenTable")
        entries = as_object(value.get("subscriptionGroupTable", {}), "subscriptionGroupTable")
        for name, entry in entries.items():
            fields = as_object(entry, name)
            try:
                check_group(name)
            except IllegalName as error:
                raise ValueError(str(error)) from None
            table._groups[name] = SubscriptionGroup(
                name,
                bool(fields.get("consumeEnable", True)),
                bool(fields.get("consumeBroadcastEnable", True)),
            )
            table._extras[name] = dict(fields)
        return table
