"""Settings of a test's brokers, by their names."""

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from ternmq_broker.config import BrokerConfig
from ternmq_model.errors import UsageError
from ternmq_store.config import StoreConfig


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of brokers and of stores.

    Raises:
        UsageError: There is no such setting.
    """
    of_broker = {field.name for field in fields(BrokerConfig)}
    of_store = {field.name for field in fields(StoreConfig)}
    for name in given:
        if name not in of_broker | of_store:
            raise UsageError(f"no setting {name!r} of a broker or a store")
    return (
        {name: value for name, value in given.items() if name in of_broker},
        {name: value for name, value in given.items() if name in of_store},
    )


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
