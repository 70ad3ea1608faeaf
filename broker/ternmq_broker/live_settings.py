"""Settings that may change at run time, and their present values. Pure.

Only listed numbers and switches may change. No file, host, address, class or command is among them,
and a new setting is not until it is listed: attackers have taken over brokers of other systems by a
request that set a path or a command.

Source: RocketMQ `AdminBrokerProcessor.updateBrokerConfig`, which has a list of refused settings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ternmq_broker.config import BrokerConfig
from ternmq_model.errors import ConfigError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import QUEUES_MAX
from ternmq_runtime.settings.reference import describe
from ternmq_runtime.settings.values import parse_value
from ternmq_store.config import DISK_PERCENTS, RESERVED_HOURS_MAX, StoreConfig

_MIB: Final = 1 << 20


class Bounds(NamedTuple):
    """Bounds of a number."""

    least: int
    most: int


ALLOWED: Final[Mapping[str, Bounds | None]] = {
    "broker.auto_create_topics": None,
    "broker.default_topic_queues": Bounds(1, QUEUES_MAX),
    "broker.draining": None,
    "broker.long_polling_enabled": None,
    "broker.pull_wait_max_ms": Bounds(0, 300_000),
    "broker.same_subscriptions_required": None,
    "broker.slave_offset_check_enabled": None,
    "broker.slave_read_enabled": None,
    "broker.stream_unanswered_max_bytes": Bounds(_MIB, 1 << 30),
    "broker.trace": None,
    "broker.transactions_open_max": Bounds(1, 100_000_000),
    "broker.unanswered_max_bytes": Bounds(_MIB, 1 << 36),
    "broker.unread_max_ms": Bounds(1, 60_000),
    "store.access_message_in_memory_max_ratio": Bounds(0, 100),
    "store.clean_forcibly": None,
    "store.delete_files_max": Bounds(1, 1_000),
    "store.delete_pause_ms": Bounds(0, 60_000),
    "store.disk_clean_percent": Bounds(*DISK_PERCENTS["disk_clean_percent"]),
    "store.disk_fall_recorded": None,
    "store.disk_force_percent": Bounds(*DISK_PERCENTS["disk_force_percent"]),
    "store.disk_full_percent": Bounds(*DISK_PERCENTS["disk_full_percent"]),
    "store.file_reserved_hours": Bounds(1, RESERVED_HOURS_MAX),
    "store.flush_interval_ms": Bounds(1, 60_000),
    "store.flush_least_pages": Bounds(0, 1 << 20),
    "store.flush_thorough_interval_ms": Bounds(1, 600_000),
    "store.read_ahead_enabled": None,
    "store.read_disk_bytes_max": Bounds(1, 4 * _MIB),
    "store.read_disk_messages_max": Bounds(1, 65_536),
    "store.read_memory_bytes_max": Bounds(1, 4 * _MIB),
    "store.read_memory_messages_max": Bounds(1, 65_536),
    "store.verify_rate_bytes": Bounds(0, 1 << 30),
}
"""Settings that may change, sorted; None = a switch. Bounds of a number may be narrower than those
at the start of a broker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveSetting:
    """One setting that may change."""

    name: str
    value: str
    bounds: Bounds | None
    doc: str


class LiveSettings:
    """Present settings. Owned by the broker's loop; a restart loses changes.

    Args:
        broker: Settings of the broker at its start.
        store: Settings of the store at its start.

    Attributes:
        broker: Present settings of the broker.
        store: Present settings of the store.
    """

    def __init__(self, broker: BrokerConfig, store: StoreConfig) -> None:
        self.broker = broker
        self.store = store
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, take: Callable[[], None]) -> None:
        """Call `take` after every change. `take` must not raise."""
        self._on_change.append(take)

    def listed(self) -> list[LiveSetting]:
        """Return every setting that may change, sorted by name."""
        docs = {
            one.name: one.doc for one in describe({"broker": BrokerConfig, "store": StoreConfig})
        }
        return [
            LiveSetting(
                name=name,
                value=_text(self._value(name)),
                bounds=self._bounds(name),
                doc=docs[name],
            )
            for name in ALLOWED
        ]

    def _bounds(self, name: str) -> Bounds | None:
        """Return the bounds of a setting. Settings at the start limit how early files expire."""
        bounds, store = ALLOWED[name], self.store
        floors = {
            "store.file_reserved_hours": min(
                store.forced_reserved_hours, store.file_reserved_hours
            ),
            "store.disk_full_percent": store.disk_full_percent,
        }
        return bounds and bounds._replace(least=max(bounds.least, floors.get(name, bounds.least)))

    def update(self, values: Mapping[str, str]) -> dict[str, str]:
        """Change all of the settings, or none.

        Args:
            values: New values by name, as text.

        Returns:
            New values of the settings that had another value.

        Raises:
            InvalidParameter: A setting is unknown or fixed, a value is out of bounds, or two values
                contradict each other. Names the setting; nothing is changed.
        """
        changes: dict[str, dict[str, Any]] = {"broker": {}, "store": {}}
        for name, text in sorted(values.items()):
            section, _, field = name.partition(".")
            if name not in ALLOWED:
                raise refusal(ResponseCode.INVALID_PARAMETER, _not_allowed(name))
            changes[section][field] = self._parsed(name, text)
        try:
            broker = replace(self.broker, **changes["broker"])
            store = replace(self.store, **changes["store"])
        except ConfigError as error:
            raise refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        changed = [name for name in sorted(values) if self._parsed_differs(name, changes)]
        self.broker, self.store = broker, store
        for take in self._on_change:
            take()
        return {name: _text(self._value(name)) for name in changed}

    def _parsed(self, name: str, text: str) -> int:
        bounds = self._bounds(name)
        rule = "must be true or false"
        if bounds is not None:
            rule = f"must be {bounds.least} to {bounds.most}"
        try:
            value = parse_value(text, bool if bounds is None else int, name)
        except ValueError:
            value = None
        is_good = isinstance(value, int) and (
            bounds is None or bounds.least <= value <= bounds.most
        )
        if not is_good or not isinstance(value, int):
            remark = f"{name} is {text[:100]!r}: {rule}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        return value

    def _parsed_differs(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> bool:
        section, _, field = name.partition(".")
        return bool(changes[section][field] != self._value(name))

    def _value(self, name: str) -> Any:
        section, _, field = name.partition(".")
        return getattr(self.broker if section == "broker" else self.store, field)


def _not_allowed(name: str) -> str:
    shown = name[:100]
    return f"{shown!r} cannot change while the broker runs; these can: {', '.join(ALLOWED)}"


def _text(value: bool | int) -> str:
    return str(value).lower()
