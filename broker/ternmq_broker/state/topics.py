"""The broker's topics: their queues and permissions. Pure.

Source: RocketMQ `TopicConfigManager`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self

from ternmq_broker.state.fastjson import (
    WrittenRows,
    as_int,
    version_from_dict,
    version_to_dict,
    write_row,
)
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import IllegalName, refusal
from ternmq_model.json_checksum import as_object
from ternmq_model.names import (
    AUTO_CREATE_TOPIC,
    RETRY_PREFIX,
    check_new_name,
    check_topic,
    is_legal,
    is_system_topic,
)
from ternmq_model.offsets import OFFSET_MAX, PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import READ_WRITE, Permission, TopicConfig, check_topic_config
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting.converters import topic_config_to_pb

AUTO_CREATE_QUEUES = 4
"""Default number of queues of a topic that a send creates."""

TOPICS_MAX: Final = 65_536
REGISTERED_BYTES_MAX: Final = 4 << 20
"""Limit of NameServers on the bytes of topics in one registration."""

DELETED_AT_ONCE_MAX: Final = 32
"""Topics that are deleted without a pause; each takes about 8 ms of the loop for its folders."""


class TopicCreationMark(NamedTuple):
    """Creation of a topic at its broker name. Zeros = not recorded, or created by RocketMQ."""

    log_offset: PhysicalOffset
    """End of the log at the creation; higher for a topic that was deleted and created again."""

    at_ms: int


class TopicTable:
    """Every topic of one broker, with the table's version. Owned by the broker's loop.

    Members of the file that `TopicConfig` lacks (attributes, filter type) are written back
    unchanged.

    Attributes:
        allows_dots: True when new names of topics may contain dots.
        odd: Entries of the file under illegal names. They are unused, and are written back
            unchanged.
        log_end: Returns the end of the log, which is recorded for a new topic unless it belongs to
            the broker. None = creations are not recorded.
    """

    def __init__(self, version: DataVersion) -> None:
        self.allows_dots = False
        self.odd: Mapping[str, Any] = {}
        self.log_end: Callable[[], PhysicalOffset] | None = None
        self._version = version
        self._topics: dict[str, TopicConfig] = {}
        self._extras: dict[str, dict[str, Any]] = {}
        self._table_extras: dict[str, Any] = {}
        self._registered: dict[str, common.TopicConfig] = {}
        self._registered_bytes = 0
        self._rows: dict[str, str] = {}
        """Saved lines of topics that have not changed since: with ten thousand topics, encoding all
        of them took longer than the disk each time a topic was created."""

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicConfig]:
        """Yield every topic, sorted by name."""
        return iter([self._topics[name] for name in sorted(self._topics)])

    @property
    def version(self) -> DataVersion:
        """Version of the table, which rises with every change; NameServers compare versions."""
        return self._version

    def registered(self) -> Sequence[common.TopicConfig]:
        """Return every topic in the form of registrations, sorted by name. Read-only."""
        return [self._registered[name] for name in sorted(self._registered)]

    def get(self, topic: str) -> TopicConfig | None:
        """Return the topic, or None when there is none of that name."""
        return self._topics.get(topic)

    def message_type(self, topic: str) -> str:
        """Return the attribute `message.type` of a topic, which RocketMQ sets; empty without it."""
        return str(self._kept_attributes(topic).get(_MESSAGE_TYPE, ""))

    def created(self, topic: str) -> TopicCreationMark:
        """Return the creation of a topic; zeros when its attributes have no valid numbers."""
        attributes = self._kept_attributes(topic)
        log_offset = at_ms = 0
        with suppress(ValueError):
            log_offset = _number(attributes, _CREATED_OFFSET, topic)
        with suppress(ValueError):
            at_ms = _number(attributes, _CREATED_MS, topic)
        return TopicCreationMark(PhysicalOffset(log_offset), at_ms)

    def settle_created(self, deletions: Mapping[str, PhysicalOffset], *, now_ms: int) -> None:
        """Raise the recorded creations of topics to those that the log proves.

        A table may be older than its log, or come from a RocketMQ without attributes.

        Args:
            deletions: End of the log at the deletion of each topic: a topic of that name was
                created later, at an unknown time.
            now_ms: Wall clock.
        """
        late = [
            topic
            for topic in self._topics
            if self.created(topic).log_offset < deletions.get(topic, 0)
        ]
        for topic in late:
            self._note_created(topic, TopicCreationMark(deletions[topic], 0))
        if late:
            self._version = self._version.next(now_ms)

    def _note_created(self, topic: str, created: TopicCreationMark) -> None:
        attributes = self._kept_attributes(topic)
        attributes[_CREATED_OFFSET] = str(created.log_offset)
        attributes[_CREATED_MS] = str(created.at_ms)
        self._extras[topic] = {**self._extras.get(topic, {}), "attributes": attributes}
        self._rows.pop(topic, None)

    def check_new(self, topic: str) -> None:
        """Check that a client or an operator may create a topic; an existing one may change.

        Raises:
            IllegalName: The new name has a forbidden dot.
        """
        if topic not in self._topics:
            check_new_name("topic", topic, allows_dots=self.allows_dots)

    def put(self, config: TopicConfig, *, now_ms: int, is_found: bool = False) -> bool:
        """Create or change a topic; return whether it is new.

        Args:
            config: Configuration that the topic gets.
            now_ms: Wall clock.
            is_found: The topic was found in the log, and is not created now.

        Raises:
            IllegalName: The name or a number of queues is illegal; nothing changes.
            RefusedError: The table would be too large to register; nothing changes.
        """
        check_topic_config(config)
        self._check_room(config)
        return self._keep(config, now_ms, is_found=is_found)

    def add_missing(self, topic: str, *, now_ms: int) -> bool:
        """Create a topic of the broker's, with one queue; return whether it was missing."""
        is_missing = topic not in self._topics
        return is_missing and self.put(TopicConfig(topic, 1, 1), now_ms=now_ms)

    def _keep(self, config: TopicConfig, now_ms: int, *, is_found: bool = False) -> bool:
        known = self._topics.get(config.topic)
        is_noted = not is_found and not is_system_topic(config.topic)  # those are never deleted
        if known is None and self.log_end is not None and is_noted:
            self._note_created(config.topic, TopicCreationMark(self.log_end(), now_ms))
        if known != config:
            self._set(config)
            self._version = self._version.next(now_ms)
        return known is None

    def _set(self, config: TopicConfig) -> None:
        row = topic_config_to_pb(config)
        self._registered_bytes += self._growth_bytes(row)
        self._topics[config.topic], self._registered[config.topic] = config, row
        self._rows.pop(config.topic, None)

    def _growth_bytes(self, row: common.TopicConfig) -> int:
        known = self._registered.get(row.topic)
        return registered_bytes(row) - (0 if known is None else registered_bytes(known))

    def _check_room(self, config: TopicConfig) -> None:
        if config.topic not in self._topics and len(self._topics) >= TOPICS_MAX:
            limit = f"{TOPICS_MAX} topics"
        elif (
            growth := self._growth_bytes(topic_config_to_pb(config))
        ) > 0 and self._registered_bytes + growth > REGISTERED_BYTES_MAX:
            limit = f"{REGISTERED_BYTES_MAX} bytes of topics in its registration"
        else:
            return
        remark = (
            f"topic {config.topic!r} does not fit: a broker has at most {limit}, and this one has"
            f" {len(self._topics)} topics of {self._registered_bytes} bytes"
        )
        raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    def remove(self, topic: str, *, now_ms: int) -> bool:
        """Remove a topic; return whether there was one."""
        if self._topics.pop(topic, None) is None:
            return False
        self._registered_bytes -= registered_bytes(self._registered.pop(topic))
        self._extras.pop(topic, None)
        self._rows.pop(topic, None)
        self._version = self._version.next(now_ms)
        return True

    def create_for_send(
        self, topic: str, *, template: str, queues: int, now_ms: int
    ) -> TopicConfig | None:
        """Create a topic for a send, and return it; None when the template forbids that.

        Args:
            topic: A legal name that the table does not have.
            template: Topic with the settings to copy; needs the inherit permission.
            queues: Number of queues that the sender asks for, at most the template's; 0 = 4.
            now_ms: Wall clock.

        Raises:
            IllegalName: `check_new` refuses the name.
            RefusedError: The table would be too large to register.

        Source: RocketMQ `TopicConfigManager.createTopicInSendMessageMethod`.
        """
        self.check_new(topic)
        if topic.startswith(RETRY_PREFIX):
            config = TopicConfig(topic, 1, 1)
        else:
            model = self._topics.get(template)
            if model is None or Permission.INHERIT not in model.permissions:
                return None
            count = min(queues or AUTO_CREATE_QUEUES, model.write_queues)
            if count < 1:
                return None
            permissions = model.permissions & ~Permission.INHERIT
            config = TopicConfig(topic, count, count, permissions)
        self.put(config, now_ms=now_ms)
        return config

    def copy(self) -> Self:
        """Return the table as it is now, for another thread to read."""
        copied = type(self)(self._version)
        copied._topics, copied._extras = dict(self._topics), dict(self._extras)
        copied._table_extras, copied.odd = self._table_extras, self.odd
        copied._registered = dict(self._registered)
        copied._registered_bytes = self._registered_bytes
        return copied

    def take_over(self, other: Self) -> Sequence[str]:
        """Replace the content by that of another table, including the version.

        Args:
            other: Table of the master, which must not be used afterwards.

        Returns:
            Names of the removed topics.
        """
        gone = [name for name in self._topics if name not in other._topics]
        self._rows = {name: row for name, row in self._rows.items() if self._is_same(name, other)}
        self._version, self._registered_bytes = other._version, other._registered_bytes
        self._topics, self._extras = other._topics, other._extras
        self._registered = other._registered
        self._table_extras, self.odd = other._table_extras, other.odd
        return gone

    def _is_same(self, topic: str, other: Self) -> bool:
        return self._topics[topic] == other._topics.get(topic) and (
            self._extras.get(topic) == other._extras.get(topic)
        )

    def set_template(self, *, queues: int, is_allowed: bool, now_ms: int) -> None:
        """Set whether TBW102 is a template for new topics.

        A full table stores the template, too: it must not stop a broker from starting.
        """
        known = self._topics.get(AUTO_CREATE_TOPIC)
        if is_allowed:
            permissions = READ_WRITE | Permission.INHERIT
            config = TopicConfig(AUTO_CREATE_TOPIC, queues, queues, permissions)
            self._keep(check_topic_config(config), now_ms)
        elif known is not None:
            self._keep(replace(known, permissions=READ_WRITE), now_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `topics.json`."""
        rows = {config.topic: self._row(config) for config in self}
        return self._with_rows({**self.odd, **rows})

    def to_written(self) -> dict[str, Any]:
        """Return the content of `topics.json` with rows of JSON text; unchanged rows are cached."""
        for name in self._topics.keys() - self._rows.keys():
            self._rows[name] = write_row(name, self._row(self._topics[name]))
        odd = {name: write_row(name, entry) for name, entry in self.odd.items()}
        return self._with_rows(WrittenRows({**odd, **self._rows}))

    def _with_rows(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self._table_extras,
            "dataVersion": version_to_dict(self._version),
            "topicConfigTable": rows,
        }

    def _row(self, config: TopicConfig) -> dict[str, Any]:
        return {
            "topicFilterType": "SINGLE_TAG",
            **self._extras.get(config.topic, {}),
            "attributes": self._attributes(config),
            "order": config.ordered,
            "perm": int(config.permissions),
            "readQueueNums": config.read_queues,
            "topicName": config.topic,
            "topicSysFlag": config.sys_flag,
            "writeQueueNums": config.write_queues,
        }

    def _attributes(self, config: TopicConfig) -> dict[str, Any]:
        attributes = self._kept_attributes(config.topic)
        attributes.pop(_RETENTION, None)
        if config.retention_ms:
            attributes[_RETENTION] = str(config.retention_ms)
        return attributes

    def _kept_attributes(self, topic: str) -> dict[str, Any]:
        return dict(self._extras.get(topic, {}).get("attributes") or {})

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], now_ms: int) -> Self:
        """Return the table in the content of `topics.json`.

        Raises:
            ValueError: A member has another type, or a number is out of bounds.
        """
        table = cls(version_from_dict(value.get("dataVersion"), now_ms=now_ms))
        kept = ("dataVersion", "topicConfigTable")
        table._table_extras = {each: value[each] for each in value if each not in kept}
        entries = as_object(value.get("topicConfigTable", {}), "topicConfigTable")
        table.odd = {name: entries[name] for name in entries if not is_legal(check_topic, name)}
        for name, entry in entries.items():
            if name in table.odd:
                continue
            fields = dict(as_object(entry, name))
            known = {key: fields.pop(key, None) for key in _KNOWN}
            if known["topicName"] not in (None, name):
                raise ValueError(f"topic {name!r} contains the name {known['topicName']!r}")
            config = TopicConfig(
                name,
                as_int(known["readQueueNums"], f"readQueueNums of {name}"),
                as_int(known["writeQueueNums"], f"writeQueueNums of {name}"),
                Permission(as_int(known["perm"], f"perm of {name}")),
                as_int(known["topicSysFlag"] or 0, f"topicSysFlag of {name}"),
                bool(known["order"]),
                _number(fields.get("attributes"), _RETENTION, name),
            )
            try:
                table._set(check_topic_config(config))
            except IllegalName as error:
                raise ValueError(str(error)) from None
            table._extras[name] = fields
        return table


def registered_bytes(config: common.TopicConfig) -> int:
    """Return the bytes that a topic takes in a registration."""
    size = config.ByteSize()
    return size + (2 if size < 128 else 3)  # the field's number and the length come before it


def _number(attributes: object, key: str, topic: str) -> int:
    """Return the number under a key of the attributes of a topic; 0 = none.

    Raises:
        ValueError: The value is no number.
    """
    text = as_object(attributes or {}, f"attributes of {topic}").get(key, "0")
    is_whole = isinstance(text, str) and text.isascii() and text.isdigit()
    if not is_whole or int(text) > OFFSET_MAX:
        raise ValueError(f"{key} of {topic} is no whole number: {text!r}")
    return int(text)


# Keys among the attributes of a topic, which RocketMQ stores as text.
_MESSAGE_TYPE: Final = "message.type"
_RETENTION: Final = "ternmq.retention.ms"
_CREATED_OFFSET: Final = "ternmq.created.log.offset"
_CREATED_MS: Final = "ternmq.created.ms"

_KNOWN = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicSysFlag", "order")
