"""Properties of a message: their names, their bytes, and the tag code.

The form on disk is a sequence of key, 0x01, value, 0x02.

Source: RocketMQ `MessageConst`, `MessageDecoder`.
"""

from collections.abc import Mapping
from typing import Final

from ternmq_model.errors import IllegalMessage
from ternmq_model.expression_text import EXPRESSION_CHARACTERS_MAX, trimmed

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
SHARDING_KEY: Final = "__SHARDINGKEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
TIMER_PREFIX: Final = "TIMER_"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_CANCEL: Final = "TIMER_DEL_UNIQKEY"
TIMER_DUE_MS: Final = "TIMER_OUT_MS"
TIMER_ROLLS: Final = "TIMER_ROLL_TIMES"
TIMER_ENQUEUED_MS: Final = "TIMER_ENQUEUE_MS"
"""Property of a record that was in RocketMQ's timer wheel."""

TRANSACTION_ID: Final = "__transactionId__"
CHECK_IMMUNITY_S: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
IMMUNITY_S_MAX: Final = 1 << 31
STAGED_FOR: Final = "TERNMQ_STAGED_FOR"
"""Property of a sink's half messages: `query/batch`, the unit of commit or rollback. The broker
asks no producer about such a half message, and rolls it back at the end of its immunity. RocketMQ
has no such property."""

STAGED_FOR_MAX: Final = 200

SOURCE: Final = "TERNMQ_SOURCE"
"""Property of a record that a broker stored again: physical offset of the original record. RocketMQ
has no such property."""

CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
REPLY: Final = "reply"
"""Value of `MESSAGE_TYPE` in replies."""

CRC32: Final = "__CRC32#"

KEY_SEPARATOR: Final = " "
NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
PAIR_END_BYTE: Final = PAIR_END.encode()
NAME_END_CODE: Final = ord(NAME_END)
PAIR_END_CODE: Final = ord(PAIR_END)

RESERVED: Final = frozenset(
    {
        KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED,
        PRODUCER_GROUP, REGION, TRACE_ON, UNIQUE_KEY, CLUSTER, CRC32,
        "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "RECONSUME_TIME",
        "MIN_OFFSET", "MAX_OFFSET", "TRAN_PREPARED_QUEUE_OFFSET", "ORIGIN_MESSAGE_ID", "BUYER_ID",
        "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "INSTANCE_ID", "CORRELATION_ID",
        "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE", "INNER_NUM",
        "INNER_BASE", "DUP_INFO", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME",
        "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT", "__BORNHOST", "BORN_TIMESTAMP",
        "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY",
        "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
        "TIMER_DELAY_LEVEL", STAGED_FOR, SOURCE,
    }
)  # fmt: skip
"""Reserved names, which are illegal for user properties."""

NOT_COPIED: Final = RESERVED | {
    CHECK_IMMUNITY_S, SHARDING_KEY, TRANSACTION_ID, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID,
}  # fmt: skip
"""Names of properties that belong to one sending of a message, so a copy of a read message omits
them. Fields or columns of their own carry tags, keys and the sharding key."""

BROKERS_OWN: Final = frozenset(
    {
        CRC32, REAL_TOPIC, REAL_QUEUE_ID, "TRAN_PREPARED_QUEUE_OFFSET", "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DELAY_LEVEL",
        "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "POP_CK",
        "POP_CK_OFFSET",
    }
)  # fmt: skip
"""Names that only a broker writes and reads. No client may send them."""

HIDDEN: Final = (CRC32, SOURCE)
"""Properties without a use for readers. They are dropped when a message is stored again."""

ROUTING: Final = frozenset(
    {
        DELAY, TRANSACTION_PREPARED, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC,
        TIMER_CANCEL,
        RECONSUME_TIME, STAGED_FOR, SOURCE,
    }
)  # fmt: skip
"""Names of properties by which a broker may store a record first in another queue or form. Clients
that do not know `SOURCE` pass it on with other properties that they have read."""


TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
"""Prefix of a client's own properties, which are never stored."""


def check_property(name: object, value: object) -> None:
    """Check that a pair can be stored and read.

    Raises:
        IllegalMessage: Name or value is no text, is empty or contains 0x01 or 0x02, or the name has
            the prefix of properties that are never stored.
    """
    if not isinstance(name, str) or not isinstance(value, str):
        raise IllegalMessage(f"property {name!r}={value!r}: both must be strings")
    if name.startswith(TRANSIENT_PREFIX):
        raise IllegalMessage(f"property {name!r}: names with this prefix are never stored")
    if not name or not value:
        raise IllegalMessage(f"property {name!r}={value!r}: neither may be empty")
    # Literals: looking up NAME_END and PAIR_END takes 5 % more time, for every property.
    if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
        raise IllegalMessage(f"property {name!r}: 0x01 and 0x02 separate properties on disk")


def is_staged_for(text: str) -> bool:
    """Return whether `text` is a legal value of STAGED_FOR: short and without blanks."""
    return (
        0 < len(text) <= STAGED_FOR_MAX
        and text.isascii()
        and text.isprintable()
        and (" " not in text)
    )


def check_tag(tag: str) -> None:
    """Check that a subscription can name a tag.

    Raises:
        IllegalMessage: The tag is illegal as a property, is longer than an expression, contains
            `||`, the separator of tags in a subscription, or has surrounding blanks, which
            `trimmed` removes there.
    """
    check_property("tags", tag)
    if len(tag) > EXPRESSION_CHARACTERS_MAX:
        raise IllegalMessage(
            f"tag {tag[:20]!r}…: {len(tag)} characters, at most {EXPRESSION_CHARACTERS_MAX} can be"
            " selected"
        )
    if "||" in tag or tag != trimmed(tag):
        raise IllegalMessage(
            f"tag {tag!r}: must not contain || or have blanks around it: no consumer could select"
            " it"
        )


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the bytes of checked `properties`, in their order."""
    # `+` in place of a format, which would write the name of an enum member that is a `str`.
    return "".join(
        [name + NAME_END + value + PAIR_END for name, value in properties.items()]
    ).encode()


def encode_name(name: str) -> bytes:
    """Return the bytes of a property up to its value."""
    return (name + NAME_END).encode()


def encode_pair(name: str, value: str) -> bytes:
    """Return the bytes of one checked property."""
    return (name + NAME_END + value + PAIR_END).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the pairs in `data` by RocketMQ's rules.

    A pair without name or value is dropped, a missing last separator is accepted, and a value may
    contain 0x01. Bytes that are no UTF-8 are replaced.
    """
    properties: dict[str, str] = {}
    for pair in data.decode("utf-8", "replace").split(PAIR_END):
        name, separator, value = pair.partition(NAME_END)
        if separator and name and value:
            properties[name] = value
    return properties


def decode_visible(data: bytes) -> dict[str, str]:
    """Return the pairs in `data` without `HIDDEN`, for readers and filters."""
    properties = decode_properties(data)
    for hidden in HIDDEN:
        properties.pop(hidden, None)
    return properties


def java_hash(text: str, *, after: int = 0) -> int:
    """Return Java's `String.hashCode` of `text`: over UTF-16 code units, in 32 signed bits.

    Args:
        text: Text, or its end if `after` is given.
        after: Hash of the text before.
    """
    code = after
    if text.isascii():
        for unit in text.encode():
            code = (code * 31 + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            code = (code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    code &= 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def tag_code(tag: str) -> int:
    """Return the tag code in a consume queue: the Java hash of the tag; 0 = no tag."""
    return java_hash(tag) if tag else 0
