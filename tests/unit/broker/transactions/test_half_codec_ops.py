import pytest

from ternmq_broker.transactions.half_codec import decode_ops, encode_ops, ops_bytes
from ternmq_model.offsets import QueueOffset


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"17,20,", [17, 20]),
        (b"17", [17]),
        (b"0,", [0]),
        (b"", []),
        (b",,", []),
        (b"1,x,2,-3, 4,", [1, 2]),
        (b"9" * 20 + b",5,", [5]),
    ],
)
def test_op_messages_of_both_versions_are_read(body: bytes, offsets: list[int]) -> None:
    assert decode_ops(body) == offsets


def test_op_message_is_read_back() -> None:
    offsets = [QueueOffset(number) for number in (0, 9, 10, 1 << 40)]
    body = encode_ops(offsets)
    assert decode_ops(body) == offsets
    assert sum(map(ops_bytes, offsets)) == len(body)
