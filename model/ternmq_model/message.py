"""Messages that applications send, and the results of a send."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from ternmq_model import properties as names
from ternmq_model.arguments import fault_of_span_ms, fault_of_time_ms, is_kind, is_whole
from ternmq_model.errors import IllegalMessage, TernError
from ternmq_model.message_id import offset_message_id
from ternmq_model.names import check_topic
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import KEY_SEPARATOR, check_property, check_tag
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import BODY_BYTES_MAX
from ternmq_model.response_code import ResponseCode


class Texts(Protocol):
    """Several texts: a list, a tuple, a set, a numpy array, but no `str`.

    A `str` holds `str` alone, so type checkers see `keys="a"`, whose characters would be the keys.
    """

    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...


NO_KEYS: Final[Texts] = ()
"""The keys of messages without any, compared by identity: an array cannot be asked `if keys`."""


def _no_properties() -> dict[str, str]:
    # Not `dict[str, str]`, whose call takes half of the time that making a message takes.
    return {}


@dataclass(slots=True)
class Message:
    """A message to send. Do not change it while a send is under way.

    Source: RocketMQ `Message`.
    """

    topic: str
    """Name of its topic: letters, digits, `%`, `|`, `_` and `-`, at most 127."""

    body: bytes
    """At most 4 MiB. Opaque."""

    tags: str = ""
    """One tag, by which consumers may filter."""

    keys: Texts = NO_KEYS
    """Business keys, by which a message can be found: a list, a tuple, a set. No blanks in them."""

    properties: Mapping[str, str] = field(default_factory=_no_properties)
    """Anything else. Names that have a meaning of their own are refused, as are empty values."""

    sharding_key: str = ""
    """Messages with the same key go to the same queue, in the order of sending."""

    flag: int = 0
    """A number of the application's own."""

    delay_level: int = 0
    """1 to 18: delivered after 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h. 0 = at
    once. At most one of this and the next two."""

    deliver_at_ms: int = 0
    """Not delivered before this time, Unix milliseconds, at most 3 days ahead. 0 = at once.
    Seconds since 1970 are refused."""

    deliver_after_ms: int = 0
    """Not delivered before so many milliseconds after it was stored, at most 3 days. 0 = none."""

    cancels: str = ""
    """The `message_id` of a message of this topic that is not to be delivered; neither is this one.
    Send it to the broker of that one before its time, with the same `deliver_at_ms`."""

    def encoded_properties(self) -> bytes:
        """Check this message and return its properties as they lie on disk.

        Raises:
            IllegalMessage: It breaks a limit; the error names which.
            IllegalName: So does the topic.
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
            text = names.TAGS + "\x01" + self.tags + "\x02"
        if len(self.keys):
            for key in self.keys:
                check_property("keys", key)
                if KEY_SEPARATOR in key:
                    raise IllegalMessage(f"key {key!r}: a blank separates keys on disk")
            text += names.KEYS + "\x01" + KEY_SEPARATOR.join(self.keys) + "\x02"
        if self.sharding_key:
            check_property("sharding_key", self.sharding_key)
            text += names.SHARDING_KEY + "\x01" + self.sharding_key + "\x02"
        if self.delay_level or self.deliver_at_ms or self.deliver_after_ms or self.cancels:
            text += self._delivery()
        for name, value in self.properties.items():
            if name in names.RESERVED:
                raise IllegalMessage(
                    f"property {name!r} has a meaning of its own; pick another name"
                )
            check_property(name, value)
            text += name + "\x01" + value + "\x02"
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise IllegalMessage(f"a property cannot be written as UTF-8: {error}") from None

    def check_kinds(self) -> None:
        """Refuse values of other types than a record holds: callers may not check theirs.

        Raises:
            IllegalName: The topic is illegal.
            IllegalMessage: There is such a value, or the flag does not fit into 32 bits.
        """
        check_topic(self.topic)
        body, keys, properties, flag = self.body, self.keys, self.properties, self.flag
        rule = ""
        # The usual classes first: to ask for an abstract one takes as long as all the rest.
        if body.__class__ is not bytes and not is_kind(body, bytes):
            rule = f"body is {type(body).__name__}, must be bytes"
            rule += ": write body.encode()" if is_kind(body, str) else ""
        elif self.tags.__class__ is not str and not is_kind(self.tags, str):
            rule = f"tags is one tag, as a string, not {self.tags!r}"
        elif not is_kind(keys, tuple, list, set) and (
            is_kind(keys, str) or not is_kind(keys, Collection)
        ):
            rule = f"keys={keys!r}: must be a list, such as [{keys!r}]"
        elif properties.__class__ is not dict and not is_kind(properties, Mapping):
            rule = (
                f"properties={properties!r}: must be a dict of strings, {{}} where there are none"
            )
        elif (flag.__class__ is not int and not is_whole(flag)) or not -(1 << 31) <= flag < 1 << 31:
            rule = f"flag {flag!r} is not a whole number of 32 bits"
        if rule:
            raise IllegalMessage(f"message for {self.topic!r}: {rule}")

    def _delivery(self) -> str:
        """Return the property that says when it is to be delivered.

        Raises:
            IllegalMessage: It says so more than once, or with a number that cannot be.
        """
        if self.cancels and not self.deliver_at_ms:
            raise IllegalMessage(
                f"message for {self.topic!r}: cancels without the deliver_at_ms of what it cancels"
            )
        told = [
            each
            for each in (
                ("delay_level", names.DELAY, self.delay_level),
                ("deliver_at_ms", names.TIMER_DELIVER_MS, self.deliver_at_ms),
                ("deliver_after_ms", names.TIMER_DELAY_MS, self.deliver_after_ms),
            )
            if each[2]
        ]
        if len(told) > 1:
            raise IllegalMessage(
                f"message for {self.topic!r}: delay_level, deliver_at_ms and deliver_after_ms "
                "exclude each other"
            )
        argument, name, value = told[0]
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
            return f"{name}\x01{value}\x02{names.TIMER_CANCEL}\x01{self.cancels}\x02"
        return f"{name}\x01{value}\x02"


@dataclass(slots=True)
class SystemMessage(Message):
    """A message with properties that applications may not set: clients add them themselves."""

    system_properties: Mapping[str, str] = field(default_factory=_no_properties)
    """Written behind all others."""

    def encoded_properties(self) -> bytes:
        """Do what `Message.encoded_properties` does, with the system properties behind."""
        own = Message.encoded_properties(self)
        for name, value in self.system_properties.items():
            check_property(name, value)
        return own + names.encode_properties(self.system_properties)


class SendStatus(Enum):
    """Safety of a stored message.

    Attributes:
        SEND_OK: Stored as safely as its broker was asked to store it.
        FLUSH_DISK_TIMEOUT: Stored by the master, whose disk had not confirmed it in time.
        FLUSH_SLAVE_TIMEOUT: Stored by the master; too few slaves had confirmed it in time.
        SLAVE_NOT_AVAILABLE: Stored by the master; too few slaves follow it.

    Source: RocketMQ `SendStatus`.
    """

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


class SendResult(NamedTuple):
    """Place of a stored message. With another status than SEND_OK it is stored, not confirmed."""

    status: SendStatus
    """Its safety."""

    message_id: str
    """The unique key that the producer gave it."""

    queue: MessageQueue
    """In which queue it lies."""

    queue_offset: QueueOffset
    """Its place in that queue, counted in messages."""

    physical_offset: PhysicalOffset
    """Its place in the broker's commit log, counted in bytes."""

    store_host: bytes
    """The broker's address: 4 or 16 bytes of IP address and 4 of the port, big-endian."""

    def __repr__(self) -> str:
        return (
            f"SendResult({self.status.name}, {self.queue}, offset={self.queue_offset}, "
            f"id={self.message_id})"
        )

    @property
    def offset_message_id(self) -> str:
        """The id that names broker and place: what `ternmq message get` finds without an index."""
        return offset_message_id(self.store_host, self.physical_offset)


class SendManyFailed(TernError):
    """Some messages of many were not stored, or it is not known whether they were.

    Attributes:
        results: For each message, in order, where it was stored or why it was not.
    """

    def __init__(self, results: Sequence[SendResult | TernError]) -> None:
        errors = [result for result in results if isinstance(result, TernError)]
        super().__init__(f"{len(errors)} of {len(results)} messages failed; the first: {errors[0]}")
        self.results = results
        self.fault = errors[0].fault
        self.retryable = all(error.retryable for error in errors)
        self.may_have_happened = any(error.may_have_happened for error in errors)
