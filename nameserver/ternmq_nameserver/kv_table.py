"""Small settings for clients, by namespace and key, and their file. Pure.

Source: RocketMQ `KVConfigManager`; docs/formats/kv-config.md.
"""

import json
from collections.abc import Mapping
from typing import Final

from ternmq_model.errors import IllegalName, invalid, refusal
from ternmq_model.json_checksum import add_checksum, as_object, verify_checksum
from ternmq_model.names import check_topic
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import ORDER_NAMESPACE, is_order_conf

NAME_CHARACTERS_MAX: Final = 255
VALUE_CHARACTERS_MAX: Final = 16_384
SETTINGS_MAX: Final = 10_000
NAMESPACE_BYTES_MAX: Final = 1 << 20
"""Keys and values of one namespace, which travel in one message."""

Namespaces = Mapping[str, Mapping[str, str]]


class KvTable:
    """Namespaced settings. Owned by the NameServer's loop.

    Immutable: a change returns another table, so that readers see it only once it is on disk.
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

    def too_large(self) -> dict[str, int]:
        """Return the bytes of each namespace that is too large for a message, as in an old file."""
        sizes = {name: size_of(values) for name, values in self._namespaces.items()}
        return {name: size for name, size in sizes.items() if size > NAMESPACE_BYTES_MAX}

    def get(self, namespace: str, key: str) -> str | None:
        """Return one setting, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def with_setting(self, namespace: str, key: str, value: str) -> "KvTable":
        """Return the table with one setting more, or changed.

        Raises:
            IllegalName: The namespace or key is empty, too long or has control characters.
            RefusedError: INVALID_PARAMETER for a value too long, one of ORDER_TOPIC_CONFIG that is
                no order of queues, or a namespace that would be too large; FLOW_CONTROL when the
                table is full.
        """
        check_setting_name("namespace", namespace)
        check_setting_name("key", key)
        _check_value(namespace, key, value)
        if self.get(namespace, key) is None and len(self) >= SETTINGS_MAX:
            remark = f"{SETTINGS_MAX} settings are kept; no more fit"
            raise refusal(ResponseCode.FLOW_CONTROL, remark)
        changed = {**self._namespaces.get(namespace, {}), key: value}
        check_namespace_size(namespace, changed)
        return KvTable({**self._namespaces, namespace: changed})

    def without_setting(self, namespace: str, key: str) -> "KvTable":
        """Return the table without one setting; the same table when it has none such.

        Raises:
            IllegalName: The namespace or key is illegal.
        """
        check_setting_name("namespace", namespace)
        check_setting_name("key", key)
        if self.get(namespace, key) is None:
            return self
        values = {name: value for name, value in self._namespaces[namespace].items() if name != key}
        return KvTable({**self._namespaces, namespace: values})

    def to_json(self) -> bytes:
        """Return the content of `kvConfig.json`."""
        table = {name: self.values(name) for name in sorted(self._namespaces)}
        return add_checksum(json.dumps({"configTable": table}, ensure_ascii=False, indent="\t"))


def kv_table_from_json(data: bytes) -> KvTable:
    """Return the table that a `kvConfig.json` holds, ours or RocketMQ's.

    Raises:
        ValueError: The content is invalid, its checksum differs, or a setting fits no message: a
            lone half of a surrogate pair, or a value that is too large.
    """
    verify_checksum(data)
    content = as_object(json.loads(data), "the file")
    table = as_object(content.get("configTable", {}), "configTable")
    namespaces: dict[str, dict[str, str]] = {}
    for namespace, values in table.items():
        settings = namespaces[namespace] = {}
        for key, value in as_object(values, f"namespace {namespace!r}").items():
            if not isinstance(value, str):
                raise ValueError(f"setting {namespace!r}/{key!r} must be a string")
            _check_fits_a_message(namespace, key, value)
            settings[key] = value
    return KvTable(namespaces)


def _check_fits_a_message(namespace: str, key: str, value: str) -> None:
    try:
        size = size_of({namespace: "", key: value})
    except UnicodeEncodeError as error:
        raise ValueError(f"setting {namespace!r}/{key!r} is no text: {error.reason}") from error
    if size > NAMESPACE_BYTES_MAX:
        rule = f"is {size} bytes long, at most {NAMESPACE_BYTES_MAX} fit"
        raise ValueError(f"setting {namespace!r}/{key[:NAME_CHARACTERS_MAX]!r} {rule}")


def size_of(values: Mapping[str, str]) -> int:
    """Return the bytes of keys and values."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in values.items())


def check_namespace_size(namespace: str, values: Mapping[str, str]) -> None:
    """Refuse a namespace that fits no message.

    Raises:
        InvalidParameter: The namespace is larger than 1 MiB.
    """
    size = size_of(values)
    if size > NAMESPACE_BYTES_MAX:
        rule = f"at most {NAMESPACE_BYTES_MAX} fit one namespace"
        raise invalid(f"namespace {namespace}: {size} bytes of settings, {rule}")


def check_setting_name(kind: str, name: str) -> str:
    """Return a legal name of a namespace or key.

    Raises:
        IllegalName: The name is empty, longer than 255 characters or has unprintable characters.
    """
    if not name:
        raise IllegalName(kind, name, "must not be empty")
    if len(name) > NAME_CHARACTERS_MAX:
        rule = f"is {len(name)} characters long, at most {NAME_CHARACTERS_MAX} fit"
        raise IllegalName(kind, name[:NAME_CHARACTERS_MAX], rule)
    if not name.isprintable():
        raise IllegalName(kind, name, "may have only printable characters")
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
        raise invalid(f"the value of {namespace}/{key} {rule}")
