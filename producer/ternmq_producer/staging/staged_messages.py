"""Staged half messages as columns, and those columns as bytes. Pure.

    "TQST" version kind reserved(2)  count(4)  id_bytes(2)  names(2)
    names:   broker length(2) broker topic length(2) topic
    offsets: count x 8     names: count x 2     ids: count x id_bytes
    CRC-32 of all that(4)

All numbers are big-endian. Ids that are upper-case hexadecimal, as producers make them, take half
of their length (kind 1); others are padded with zeros to the longest (kind 0).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from ternmq_model.crc32 import crc32
from ternmq_model.errors import UsageError
from ternmq_model.offsets import PhysicalOffset

_MAGIC: Final = b"TQST"
_VERSION: Final = 1
_TEXT, _HEX = 0, 1
_HEAD: Final = struct.Struct(">4sBBxxIHH")
_SHORT: Final = struct.Struct(">H")
_CRC: Final = struct.Struct(">I")
_HEX_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_NAMES_MAX: Final = 1 << 16
_ID_BYTES_MAX: Final = (1 << 16) - 1


class StagedMessage(NamedTuple):
    """One half message that waits for its end."""

    broker_name: str
    topic: str
    """Topic of the message once it is committed."""
    transaction: PhysicalOffset
    """Offset of the half message in its broker's log, which identifies the transaction there."""
    message_id: str


class StagedMessages(Sequence[StagedMessage]):
    """Half messages that wait for their end, in order. Immutable.

    About 44 bytes each in memory. `a + b` joins two, a slice is one as well.

    Attributes:
        names: Brokers with a topic each.
        places: Index in `names` of each message.
        transactions: Offset of each half message in its broker's log.
        ids: Id of each message, in UTF-8.
    """

    __slots__ = ("ids", "names", "places", "transactions")

    def __init__(self) -> None:
        self.names: tuple[tuple[str, str], ...] = ()
        self.places: NDArray[np.uint16] = np.zeros(0, dtype=np.uint16)
        self.transactions: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.ids: NDArray[np.bytes_] = np.zeros(0, dtype="S1")

    @classmethod
    def of_columns(
        cls,
        names: Sequence[tuple[str, str]],
        places: NDArray[np.uint16],
        transactions: NDArray[np.int64],
        ids: NDArray[np.bytes_],
    ) -> Self:
        """Return the messages of columns of one length; no id ends with a zero byte."""
        made = cls()
        made.names, made.places = tuple(names), places
        made.transactions, made.ids = transactions, ids
        return made

    @classmethod
    def of(cls, messages: Iterable[StagedMessage]) -> Self:
        """Return `messages` as columns; columns are returned as they are.

        Raises:
            UsageError: An id is illegal, or there are too many brokers and topics.
        """
        if isinstance(messages, cls):
            return messages
        names: dict[tuple[str, str], int] = {}
        places: list[int] = []
        transactions: list[int] = []
        ids: list[bytes] = []
        for one in messages:
            places.append(names.setdefault((one.broker_name, one.topic), len(names)))
            transactions.append(one.transaction)
            ids.append(one.message_id.encode())
        if any(not key or key.endswith(b"\0") or len(key) > _ID_BYTES_MAX for key in ids):
            raise UsageError("a staged message's id is empty, ends with a zero byte or is too long")
        return cls.of_columns(
            _checked(names),
            np.array(places, dtype=np.uint16),
            np.array(transactions, dtype=np.int64),
            np.array(ids, dtype=bytes) if ids else np.zeros(0, dtype="S1"),
        )

    def __len__(self) -> int:
        return len(self.transactions)

    @overload
    def __getitem__(self, index: int) -> StagedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> "StagedMessages": ...
    def __getitem__(self, index: int | slice) -> "StagedMessage | StagedMessages":
        if isinstance(index, slice):
            return self.take(index)
        broker_name, topic = self.names[int(self.places[index])]
        transaction = PhysicalOffset(int(self.transactions[index]))
        return StagedMessage(broker_name, topic, transaction, self.ids[index].decode())

    def __iter__(self) -> Iterator[StagedMessage]:
        for start in range(0, len(self), 1024):
            part = slice(start, start + 1024)
            for place, transaction, key in zip(
                self.places[part].tolist(),
                self.transactions[part].tolist(),
                self.ids[part].tolist(),
                strict=True,
            ):
                broker_name, topic = self.names[int(place)]
                yield StagedMessage(broker_name, topic, PhysicalOffset(transaction), key.decode())

    def __add__(self, other: "StagedMessages") -> "StagedMessages":
        names = {name: number for number, name in enumerate(self.names)}
        numbers = [names.setdefault(name, len(names)) for name in other.names]
        moved = np.array(numbers, dtype=np.uint16)[other.places] if len(other) else other.places
        return StagedMessages.of_columns(
            _checked(names),
            np.concatenate([self.places, moved]),
            np.concatenate([self.transactions, other.transactions]),
            np.concatenate([self.ids, other.ids]),
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StagedMessages)
            and len(self) == len(other)
            and bool((self.transactions == other.transactions).all())
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StagedMessages({len(self)} of {len({name for name, _ in self.names})} brokers)"

    def message_ids(self) -> list[str]:
        """Return the id of each message."""
        return [key.decode() for key in self.ids.tolist()]

    def topics_of(self, broker_name: str) -> tuple[str, ...]:
        """Return the topics of the messages of a broker."""
        return tuple(topic for name, topic in self.names if name == broker_name)

    def take(self, rows: "slice | NDArray[np.int64]") -> "StagedMessages":
        """Return the messages of some rows."""
        return StagedMessages.of_columns(
            self.names, self.places[rows], self.transactions[rows], self.ids[rows]
        )

    def rows_by_broker(self) -> dict[str, NDArray[np.int64]]:
        """Return the rows of each broker, in the order of storage."""
        brokers = sorted({broker_name for broker_name, _ in self.names})
        of_place = np.array([brokers.index(name) for name, _ in self.names], dtype=np.int64)
        order = np.argsort(self.transactions, kind="stable")
        of_row = of_place[self.places[order]] if len(self) else self.transactions
        rows = {name: order[of_row == number] for number, name in enumerate(brokers)}
        return {name: own for name, own in rows.items() if len(own)}


def encode_staged(staged: StagedMessages) -> bytes:
    """Return staged messages as bytes, 26 each when producers of IPv4 hosts made their ids."""
    ids = staged.ids
    width = ids.dtype.itemsize
    kind, packed = _TEXT, ids.tobytes()
    units = np.frombuffer(packed, dtype=np.uint8)
    if len(units) and width % 2 == 0 and np.isin(units, _HEX_DIGITS).all():
        kind, packed, width = _HEX, bytes.fromhex(packed.decode("ascii")), width // 2
    parts = [_HEAD.pack(_MAGIC, _VERSION, kind, len(staged), width, len(staged.names))]
    for name in staged.names:
        for text in name:
            data = text.encode()
            parts += (_SHORT.pack(len(data)), data)
    parts += (
        staged.transactions.astype(">i8").tobytes(),
        staged.places.astype(">u2").tobytes(),
        packed,
    )
    whole = b"".join(parts)
    return whole + _CRC.pack(crc32(whole))


def decode_staged(data: bytes) -> StagedMessages:
    """Return the staged messages that `encode_staged` wrote.

    Raises:
        UsageError: The bytes have another form or version.
    """
    try:
        return _decode(data)
    except (struct.error, ValueError, IndexError) as error:
        raise UsageError(f"no encoded staged messages: {error}") from None


def _decode(data: bytes) -> StagedMessages:
    magic, version, kind, count, width, names_count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("their magic number differs")
    if version != _VERSION:
        raise ValueError(f"version {version}, known is {_VERSION}")
    (crc,) = _CRC.unpack(data[-_CRC.size :])
    if crc != crc32(data[: -_CRC.size]):
        raise ValueError("their checksum differs")
    at = _HEAD.size
    texts: list[str] = []
    for _ in range(2 * names_count):
        (length,) = _SHORT.unpack_from(data, at)
        texts.append(data[at + 2 : at + 2 + length].decode())
        at += 2 + length
    if at + count * (10 + width) + _CRC.size != len(data):
        raise ValueError("their length is wrong")
    transactions = np.frombuffer(data, ">i8", count, at).astype(np.int64)
    places = np.frombuffer(data, ">u2", count, at + 8 * count).astype(np.uint16)
    packed = data[at + 10 * count : -_CRC.size]
    if kind == _HEX:
        packed, width = packed.hex().upper().encode(), width * 2
    kind_of_ids: np.dtype[Any] = np.dtype((np.bytes_, width))
    ids = np.frombuffer(packed, kind_of_ids, count) if count else np.zeros(0, dtype="S1")
    names = list(zip(texts[::2], texts[1::2], strict=True))
    if count and int(places.max()) >= len(names):
        raise ValueError("an index is beyond the names")
    return StagedMessages.of_columns(names, places, transactions, ids)


def _checked(names: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    kept = tuple(names)
    if len(kept) > _NAMES_MAX - 1:
        raise UsageError(f"staged messages of {len(kept)} brokers and topics")
    return kept
