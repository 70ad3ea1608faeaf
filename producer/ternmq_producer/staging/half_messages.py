"""Half messages in the form for staging. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from ternmq_model.errors import IllegalMessage, UsageError
from ternmq_model.message import Message
from ternmq_model.properties import (
    CHECK_IMMUNITY_S,
    IMMUNITY_S_MAX,
    PRODUCER_GROUP,
    STAGED_FOR,
    STAGED_FOR_MAX,
    TRANSACTION_PREPARED,
    encode_properties,
    is_staged_for,
)


@dataclass(slots=True)
class HalfMessage(Message):
    """Message to stage."""

    suffix: bytes = b""
    """Encoded properties of a staged half message, written behind the message's own."""

    def encoded_properties(self) -> bytes:
        """Return the properties, encoded, followed by the suffix.

        Raises:
            IllegalMessage: The message breaks a limit, or cancels another.
        """
        if self.cancels:
            raise IllegalMessage(f"message for {self.topic!r}: a staged one cannot cancel another")
        return Message.encoded_properties(self) + self.suffix


def staging_suffix(group: str, *, staged_for: str, immunity_s: int) -> bytes:
    """Return the properties of a staged half message beside its own, encoded.

    Raises:
        UsageError: `staged_for` or `immunity_s` is illegal.
    """
    if not is_staged_for(staged_for):
        raise UsageError(
            f"staged_for={staged_for!r}: must be 1 to {STAGED_FOR_MAX} printable ASCII characters "
            "without blanks"
        )
    if not 1 <= immunity_s < IMMUNITY_S_MAX:
        raise UsageError(f"immunity_s={immunity_s}: must be 1 to {IMMUNITY_S_MAX - 1}")
    return encode_properties(
        {
            TRANSACTION_PREPARED: "true",
            PRODUCER_GROUP: group,
            STAGED_FOR: staged_for,
            CHECK_IMMUNITY_S: str(immunity_s),
        }
    )


class HalfMessages(Sequence[HalfMessage]):
    """Sequence of half messages, each created when it is sent, while brokers store earlier ones.

    Args:
        messages: Messages, not to be changed.
        suffix: Result of `staging_suffix`.
    """

    def __init__(self, messages: Sequence[Message], suffix: bytes) -> None:
        self._messages = messages
        self._suffix = suffix

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> HalfMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[HalfMessage]: ...
    def __getitem__(self, index: int | slice) -> HalfMessage | list[HalfMessage]:
        if isinstance(index, slice):
            suffix = self._suffix
            return [staged_half_message(message, suffix) for message in self._messages[index]]
        return staged_half_message(self._messages[index], self._suffix)


def staged_half_message(message: Message, suffix: bytes) -> HalfMessage:
    """Return the half message of `message`, without checks."""
    return HalfMessage(
        message.topic,
        message.body,
        message.tags,
        message.keys,
        message.properties,
        message.sharding_key,
        message.flag,
        message.delay_level,
        message.deliver_at_ms,
        message.deliver_after_ms,
        message.cancels,
        suffix,
    )
