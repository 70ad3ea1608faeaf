"""Small settings for clients, by namespace and key, and the file that keeps them. Pure.

Source: RocketMQ `KVConfigManager`; docs/formats/kv-config.md.
"""

import json
from collections.abc import Mapping
from typing import Final, cast

from ternmq_model.errors import IllegalName, refusal
from ternmq_model.names import check_topic
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import is_order_conf

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Its keys are topics, its values say which queues a topic always has: "brokerA:8;brokerB:8"."""

NAME_CHARACTERS_MAX: Final = 255
VALUE_CHARACTERS_MAX: Final = 16_384
SETTINGS_MAX: Final = 10_000

Namespaces = Mapping[str, Mapping[str, str]]


class KvTable:
    """Namespaced settings. Owned by the NameServer's loop.

    Immutable from outside: a change gives the next table, so that it can be written to disk before
    anybody reads it.
    """

    def __init__(self, namespaces: Namespaces | None = None) -> None:
        self._namespaces = {
            name: dict(values) for name, values in (namespaces or {}).items() if values
        }

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))

    def values(self, namespace: str) -> dict[str, str]:
        """Return every setting of a namespace, sorted by key; empty for an unknown one."""
        return dict(sorted(self._namespaces.get(namespace, {}).items()))

    def get(self, namespace: str, key: str) -> str | None:
        """Return one setting, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def with_setting(self, namespace: str, key: str, value: str) -> "KvTable":
        """Return the table with one setting more, or changed.

        Raises:
            IllegalName: The namespace or key is empty, too long or has control characters.
            RefusedError: INVALID_PARAMETER for a value too long, or one of ORDER_TOPIC_CONFIG that
                is no order of queues; FLOW_CONTROL when the table is full.
        """
        check_setting_name("namespace", namespace)
        check_setting_name("key", key)
        _check_value(namespace, key, value)
        if self.get(namespace, key) is None and len(self) >= SETTINGS_MAX:
            remark = f"{SETTINGS_MAX} settings are kept; no more fit"
            raise refusal(ResponseCode.FLOW_CONTROL, remark)
        changed = {**self._namespaces.get(namespace, {}), key: value}
        return KvTable({**self._namespaces, namespace: changed})

    def without_setting(self, namespace: str, key: str) -> "KvTable":
        """Return the table without one setting; the same table when it has none such.

        Raises:
            IllegalName: No setting could be called so.
        """
        check_setting_name("namespace", namespace)
        check_setting_name("key", key)
        if self.get(namespace, key) is None:
            return self
        left = {name: value for name, value in self._namespaces[namespace].items() if name != key}
        return KvTable({**self._namespaces, namespace: left})

    def to_json(self) -> bytes:
        """Return the content of `kvConfig.json`."""
        table = {name: self.values(name) for name in sorted(self._namespaces)}
        text = json.dumps({"configTable": table}, ensure_ascii=False, indent="\t")
        return text.encode() + b"\n"


def kv_table_from_json(data: bytes) -> KvTable:
    """Return the table that a `kvConfig.json` holds, ours or RocketMQ's.

    Raises:
        ValueError: It is no such file.
    """
    table = _object("configTable", _object("file", json.loads(data)).get("configTable", {}))
    namespaces: dict[str, dict[str, str]] = {}
    for namespace, values in table.items():
        settings = namespaces[namespace] = {}
        for key, value in _object(f"namespace {namespace!r}", values).items():
            if not isinstance(value, str):
                raise ValueError(f"setting {namespace}/{key} must be a string")
            settings[key] = value
    return KvTable(namespaces)


def _object(what: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object")
    return cast("dict[str, object]", value)


def check_setting_name(kind: str, name: str) -> str:
    """Return `name` when a namespace or key may be so.

    Raises:
        IllegalName: It is empty, longer than 255 characters or has characters that do not print.
    """
    if not name:
        raise IllegalName(kind, name, "must not be empty")
    if len(name) > NAME_CHARACTERS_MAX:
        rule = f"is {len(name)} characters long, at most {NAME_CHARACTERS_MAX} fit"
        raise IllegalName(kind, name[:NAME_CHARACTERS_MAX], rule)
    if not name.isprintable():
        raise IllegalName(kind, name, "may have only characters that print")
    return name


def _check_value(namespace: str, key: str, value: str) -> None:
    rule = ""
    if len(value) > VALUE_CHARACTERS_MAX:
        rule = f"is {len(value)} characters long, at most {VALUE_CHARACTERS_MAX} fit"
    if namespace == ORDER_NAMESPACE:
        check_topic(key)
        if not is_order_conf(value):
            rule = 'must name queues as "brokerA:8;brokerB:8"'
    if rule:
        remark = f"the value of {namespace}/{key} {rule}"
        raise refusal(ResponseCode.INVALID_PARAMETER, remark)
