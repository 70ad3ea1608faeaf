"""Staged messages as columns and as bytes say what they said one by one."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.errors import UsageError
from ternmq_model.offsets import PhysicalOffset
from ternmq_producer.staging import StagedMessage, StagedMessages, decode_staged, encode_staged

names = st.sampled_from(["a", "b", "broker-é", "T" * 127])
PRINTABLE = st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], include_characters=" ")
ids = st.one_of(
    st.integers(0, (1 << 128) - 1).map("{:032X}".format),
    st.text(PRINTABLE, min_size=1, max_size=20),
)
messages = st.builds(
    StagedMessage,
    names,
    names,
    st.integers(0, (1 << 63) - 1).map(PhysicalOffset),
    ids,
)
lists = st.lists(messages, max_size=30)


@given(lists)
def test_staged_messages_survive_encoding_round_trip(one: list[StagedMessage]) -> None:
    columns = StagedMessages.of(one)
    assert list(columns) == one
    assert decode_staged(encode_staged(columns)) == columns
    assert encode_staged(decode_staged(encode_staged(columns))) == encode_staged(columns)


@given(lists, lists, st.slices(30))
def test_columns_are_a_sequence(
    one: list[StagedMessage], two: list[StagedMessage], part: slice
) -> None:
    columns = StagedMessages.of(one)
    assert list(columns + StagedMessages.of(two)) == one + two
    assert list(columns[part]) == one[part]
    assert [columns[number] for number in range(len(one))] == one
    assert columns.message_ids() == [each.message_id for each in one]
    rows = columns.rows_by_broker()
    assert sorted(row for own in rows.values() for row in own.tolist()) == list(range(len(one)))
    for broker_name, own in rows.items():
        theirs = list(columns.take(own))
        offsets = [each.transaction for each in theirs]
        assert offsets == sorted(offsets)
        assert {each.broker_name for each in theirs} == {broker_name}


@given(lists, st.integers(0, 1 << 30), st.integers(1, 255))
def test_altered_or_cut_encoding_is_refused(
    one: list[StagedMessage], place: int, change: int
) -> None:
    data = bytearray(encode_staged(StagedMessages.of(one)))
    data[place % len(data)] ^= change
    with pytest.raises(UsageError, match="no encoded staged messages"):
        decode_staged(bytes(data))
    with pytest.raises(UsageError):
        decode_staged(bytes(data[: place % len(data)]))


def test_other_encoding_version_is_refused_by_number() -> None:
    data = bytearray(encode_staged(StagedMessages()))
    data[4] = 2
    data[-4:] = zlib.crc32(data[:-4]).to_bytes(4, "big")
    with pytest.raises(UsageError, match="version 2, known is 1"):
        decode_staged(bytes(data))


def test_encoded_staged_message_takes_26_bytes() -> None:
    one = [StagedMessage("a", "T", PhysicalOffset(n), f"{n:032X}") for n in range(10_000)]
    assert len(encode_staged(StagedMessages.of(one))) < 26.1 * len(one)


@pytest.mark.parametrize("key", ["", "a\0", "x" * 70_000])
def test_illegal_transaction_id_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="id"):
        StagedMessages.of([StagedMessage("a", "T", PhysicalOffset(0), key)])
