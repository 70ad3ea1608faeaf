"""Settings of a test's brokers, by their names."""

from collections.abc import Mapping
from dataclasses import Field, fields
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, TypeVar

from ternmq_broker.config import BrokerConfig
from ternmq_model.arguments import check_whole, fault_of_seconds, is_whole
from ternmq_model.errors import UsageError
from ternmq_store.config import FlushMode, StoreConfig

E = TypeVar("E", bound=Enum)

_BROKERS_MAX: Final = 26

_OWNED: Final = {
    "name": "give their number: brokers=2",
    "nameservers": "use the `nameserver` of the cluster",
    "listen": "use the `nameserver` of the cluster",
    "port": "use the `nameserver` of the cluster",
    "hostname": "it is the name of the broker",
    "store_host": "it is 127.0.0.1",
    "broker_id": "every broker is a master",
    "flush_mode": "use flush='sync' or flush='async'",
}
"""Settings that are the cluster's own, with what to do instead."""


def broker_names(brokers: int) -> list[str]:
    """Return the names of so many brokers, from `broker-a` on.

    Raises:
        UsageError: There are none, or more than letters.
    """
    check_whole("brokers", brokers, 1, _BROKERS_MAX)
    return [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]


def flush_of(flush: str) -> FlushMode:
    """Return a mode by its word.

    Raises:
        UsageError: There is no such mode.
    """
    return _of_words("flush", FlushMode, flush)


def refuse_owned(given: Mapping[str, Any]) -> None:
    """Check that no setting is one that a cluster in this process makes itself.

    Raises:
        UsageError: One is.
    """
    for name in given:
        if name in _OWNED:
            raise UsageError(f"{name}={given[name]!r} is the cluster's own: {_OWNED[name]}")


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of brokers and of stores.

    Raises:
        UsageError: There is no such setting, or its value is of another type.
    """
    of_broker = {field.name: field for field in fields(BrokerConfig)}
    of_store = {field.name: field for field in fields(StoreConfig)}
    known = of_broker | of_store
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"no setting {name!r} of a broker or a store{hint}")
    checked = {name: _checked(known[name], value) for name, value in given.items()}
    return (
        {name: value for name, value in checked.items() if name in of_broker},
        {name: value for name, value in checked.items() if name in of_store},
    )


def _checked(field: Field[Any], value: Any) -> Any:
    """Return the value of a setting, which has the type of its default."""
    default: object = field.default
    kind = type(default)
    if isinstance(default, Enum):
        return _of_words(field.name, type(default), value)
    rule: str | None = None
    if kind is bool and not isinstance(value, bool):
        rule = "must be True or False"
    elif kind is int and not is_whole(value):
        rule = "must be a whole number"
    elif kind is float:
        rule = fault_of_seconds(value)
    elif kind is str and not isinstance(value, str):
        rule = "must be a text"
    if rule is not None:
        raise UsageError(f"{field.name}={value!r} {rule}")
    return value


def _of_words(name: str, kind: type[E], value: Any) -> E:
    try:
        return kind(value)
    except ValueError:
        words = " or ".join(repr(each.value) for each in kind)
        raise UsageError(f"{name}={value!r} must be {words}") from None


def setting_variables(given: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as variables of the environment of a broker's process.

    Raises:
        UsageError: There is no such setting.
    """
    of_broker, of_store = split_settings(given)
    sections = {"BROKER": of_broker, "STORE": of_store}
    return {
        f"TERNMQ_{section}__{name.upper()}": _text_of(value)
        for section, values in sections.items()
        for name, value in values.items()
    }


def _text_of(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case Enum():
            return str(value.value)
        case tuple() | list():
            return ",".join(str(each) for each in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return str(value)
