"""Messages that applications send, and the results of a send."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from ternmq_model import properties as names
from ternmq_model.arguments import fault_of_span_ms, fault_of_time_ms, is_kind, is_whole
from ternmq_model.errors import IllegalMessage, TernError
from ternmq_model.message_id import offset_message_id
from ternmq_model.names import check_topic
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import KEY_SEPARATOR, NAME_END, PAIR_END, check_property, check_tag
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import BODY_BYTES_MAX
from ternmq_model.response_code import ResponseCode

_TAGS: Final = names.TAGS + NAME_END
_KEYS: Final = names.KEYS + NAME_END
_SHARDING_KEY: Final = names.SHARDING_KEY + NAME_END


class Texts(Protocol):
    """Collection of texts, such as a list, a tuple, a set or a numpy array, but no `str`.

    Type checkers refuse `keys="a"`, because a `str` contains `str` alone: its characters would be
    the keys.
    """

    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...


NO_KEYS: Final[Texts] = ()
"""Keys of a message without keys, compared by identity, since `if keys` fails for an array."""


def _refuse_change(*_: object, **__: object) -> NoReturn:
    raise TypeError("these are the properties of every message without any: assign a new dict")


class _NoProperties(dict[str, str]):
    """Properties of all messages without properties, and so refused to be changed.

    A dict for each message would take a third of the time of making it, and the garbage collector
    would count and visit it.
    """

    __setitem__: Any = _refuse_change
    __ior__: Any = _refuse_change
    setdefault: Any = _refuse_change
    update: Any = _refuse_change

    def __hash__(self) -> int:  # type: ignore[override]  # dataclasses take it for a constant then
        return 0

    def __reduce__(self) -> str:
        return "NO_PROPERTIES"


NO_PROPERTIES: Final[Mapping[str, str]] = _NoProperties()
"""Properties of a message without properties, compared by identity where that is faster."""


@dataclass(slots=True)
class Message:
    """Message to send. Do not change it while a send is in progress.

    Source: RocketMQ `Message`.
    """

    topic: str
    """Name of the topic: letters, digits, `%`, `|`, `_` and `-`, at most 127 characters."""

    body: bytes
    """Content of the message, at most 4 MiB."""

    tags: str = ""
    """One tag, by which consumers may filter."""

    keys: Texts = NO_KEYS
    """Business keys, by which a message can be found: a list, a tuple or a set of texts without
    blanks."""

    properties: Mapping[str, str] = NO_PROPERTIES
    """Properties of the application. Reserved names and empty values are refused."""

    sharding_key: str = ""
    """Sharding key: messages with equal keys go to one queue, in the order of sending."""

    flag: int = 0
    """Number for the application's own use, 32 bits."""

    delay_level: int = 0
    """Delay level of the delivery, 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h
    2h. 0 = no delay. Excludes `deliver_at_ms` and `deliver_after_ms`."""

    deliver_at_ms: int = 0
    """Time of the delivery, Unix milliseconds, at most 3 days ahead. 0 = at once. Seconds since
    1970 are refused."""

    deliver_after_ms: int = 0
    """Delay of the delivery after the message is stored, ms, at most 3 days. 0 = no delay."""

    cancels: str = ""
    """`message_id` of a timed message of the same topic whose delivery is cancelled. The cancelling
    message is not delivered either; it goes to the same broker before the time, with the same
    `deliver_at_ms`."""

    def encoded_properties(self) -> bytes:
        """Check the message and return its properties in the form on disk.

        Raises:
            IllegalMessage: The message exceeds a limit, which the text names.
            IllegalName: The topic's name is illegal.
        """
        self.check_kinds()
        if len(self.body) > BODY_BYTES_MAX:
            raise IllegalMessage(
                f"message for {self.topic!r}: body has {len(self.body)} bytes, "
                f"at most {BODY_BYTES_MAX} fit"
            )
        # By `+`, not by a format: of an enum's member, which is a `str` too, that is its name.
        text = ""
        if self.tags:
            check_tag(self.tags)
            text = _TAGS + self.tags + PAIR_END
        if len(self.keys):
            for key in self.keys:
                check_property("keys", key)
                if KEY_SEPARATOR in key:
                    raise IllegalMessage(f"key {key!r}: a blank separates keys on disk")
            text += _KEYS + KEY_SEPARATOR.join(self.keys) + PAIR_END
        if self.sharding_key:
            check_property("sharding_key", self.sharding_key)
            text += _SHARDING_KEY + self.sharding_key + PAIR_END
        if self.delay_level or self.deliver_at_ms or self.deliver_after_ms or self.cancels:
            text += self._delivery()
        for name, value in self.properties.items():
            if name in names.RESERVED:
                raise IllegalMessage(f"property {name!r} is reserved; choose another name")
            check_property(name, value)
            text += name + NAME_END + value + PAIR_END
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise IllegalMessage(f"a property cannot be written as UTF-8: {error}") from None

    def check_kinds(self) -> None:
        """Refuse values whose types a record cannot hold, for callers without a type checker.

        Raises:
            IllegalName: The topic's name is illegal.
            IllegalMessage: A value has another type, or the flag does not fit into 32 bits.
        """
        check_topic(self.topic)
        body, keys, properties, flag = self.body, self.keys, self.properties, self.flag
        rule = ""
        # The usual classes come first: a check for an abstract class takes as long as all others.
        if body.__class__ is not bytes and not is_kind(body, bytes):
            rule = f"body is {type(body).__name__}, must be bytes"
            rule += ": write body.encode()" if is_kind(body, str) else ""
        elif self.tags.__class__ is not str and not is_kind(self.tags, str):
            rule = f"tags is one tag, as a string, not {self.tags!r}"
        elif not is_kind(keys, tuple, list, set) and (
            is_kind(keys, str) or not is_kind(keys, Collection)
        ):
            rule = f"keys={keys!r}: must be a list, such as [{keys!r}]"
        elif properties is not NO_PROPERTIES and not is_kind(properties, dict, Mapping):
            rule = (
                f"properties={properties!r}: must be a dict of strings, {{}} where there are none"
            )
        elif (flag.__class__ is not int and not is_whole(flag)) or not -(1 << 31) <= flag < 1 << 31:
            rule = f"flag {flag!r} is not a whole number of 32 bits"
        if rule:
            raise IllegalMessage(f"message for {self.topic!r}: {rule}")

    def _delivery(self) -> str:
        """Return the property with the time of the delivery.

        Raises:
            IllegalMessage: More than one time is given, or its number is illegal.
        """
        if self.cancels and not self.deliver_at_ms:
            raise IllegalMessage(
                f"message for {self.topic!r}: a cancellation needs the deliver_at_ms of the"
                " cancelled message"
            )
        given = [
            each
            for each in (
                ("delay_level", names.DELAY, self.delay_level),
                ("deliver_at_ms", names.TIMER_DELIVER_MS, self.deliver_at_ms),
                ("deliver_after_ms", names.TIMER_DELAY_MS, self.deliver_after_ms),
            )
            if each[2]
        ]
        if len(given) > 1:
            raise IllegalMessage(
                f"message for {self.topic!r}: delay_level, deliver_at_ms and deliver_after_ms "
                "exclude each other"
            )
        argument, name, value = given[0]
        if name == names.TIMER_DELIVER_MS:
            fault = fault_of_time_ms(value)
        elif name == names.TIMER_DELAY_MS:
            fault = fault_of_span_ms(value)
        else:
            fault = None if is_whole(value) else "must be a delay level, a whole number"
        if fault is None and value < 0:
            fault = "must be above 0"
        if fault is not None:
            raise IllegalMessage(f"message for {self.topic!r}: {argument} is {value!r}, {fault}")
        if self.cancels:
            check_property("cancels", self.cancels)
            cancel = names.TIMER_CANCEL + NAME_END + self.cancels + PAIR_END
            return f"{name}{NAME_END}{value}{PAIR_END}{cancel}"
        return f"{name}{NAME_END}{value}{PAIR_END}"


@dataclass(slots=True)
class SystemMessage(Message):
    """Message with properties that clients add and applications may not set."""

    system_properties: Mapping[str, str] = NO_PROPERTIES
    """Properties that are written behind all others."""

    def encoded_properties(self) -> bytes:
        """Return `Message.encoded_properties`, followed by the system properties."""
        own = Message.encoded_properties(self)
        for name, value in self.system_properties.items():
            check_property(name, value)
        return own + names.encode_properties(self.system_properties)


class SendStatus(Enum):
    """Safety of a stored message.

    Attributes:
        SEND_OK: The message is stored as safely as the broker's settings demand.
        FLUSH_DISK_TIMEOUT: The master has the message; its disk did not confirm it in time.
        FLUSH_SLAVE_TIMEOUT: The master has the message; too few slaves confirmed it in time.
        SLAVE_NOT_AVAILABLE: The master has the message; too few slaves follow.

    Source: RocketMQ `SendStatus`.
    """

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


class SendResult(NamedTuple):
    """Result of a send: status, ids, queue and offsets of the stored message."""

    status: SendStatus
    """Safety of the message; any status but SEND_OK means stored and not confirmed."""

    message_id: str
    """Unique key, which the producer has made."""

    queue: MessageQueue
    """Queue of the message."""

    queue_offset: QueueOffset
    """Offset in the queue, counted in messages."""

    physical_offset: PhysicalOffset
    """Offset in the broker's commit log, counted in bytes."""

    store_host: bytes
    """Address of the broker: 4 or 16 bytes of IP address and 4 of the port, big-endian."""

    def __repr__(self) -> str:
        return (
            f"SendResult({self.status.name}, {self.queue}, offset={self.queue_offset}, "
            f"id={self.message_id})"
        )

    @property
    def offset_message_id(self) -> str:
        """Id of broker and physical offset, which `ternmq message get` finds without an index."""
        return offset_message_id(self.store_host, self.physical_offset)


class SendManyFailed(TernError):
    """Failure of some of many messages, which were not stored, or may not have been.

    Attributes:
        results: Result or error of each message, in order.
    """

    def __init__(self, results: Sequence[SendResult | TernError]) -> None:
        errors = [result for result in results if isinstance(result, TernError)]
        super().__init__(f"{len(errors)} of {len(results)} messages failed; the first: {errors[0]}")
        self.results = results
        self.fault = errors[0].fault
        self.retryable = all(error.retryable for error in errors)
        self.may_have_happened = any(error.may_have_happened for error in errors)
