"""What tasks tell the driver."""

import pytest

from ternmq_model.errors import UsageError
from ternmq_model.offsets import PhysicalOffset
from ternmq_pipeline.sink.commit_message import StagedPartition, decode_part, encode_part
from ternmq_pipeline.sink.identity import BatchIdentity, PartitionAttempt
from ternmq_producer.staging import StagedMessage, StagedMessages

PART = PartitionAttempt(BatchIdentity("query", 4), 2, "a1")
STAGED = StagedMessages.of(
    StagedMessage("broker-a", "flights", PhysicalOffset(100 * row), f"{row:032X}")
    for row in range(5)
)


@pytest.mark.parametrize("staged", [STAGED, StagedMessages()])
def test_part_survives_the_round_trip(staged: StagedMessages) -> None:
    told = StagedPartition(PART, "group", 3600, 1_700_000_000_000, staged)
    assert decode_part(encode_part(told)) == told


def test_other_version_is_refused_by_number() -> None:
    data = encode_part(StagedPartition(PART, "group", 3600, 0, STAGED))
    with pytest.raises(UsageError, match="version 9"):
        decode_part(b"\x09" + data[1:])


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\0\0\0\x02{}", b"\x01\0\0\0\x02{]"])
def test_malformed_commit_message_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="commit message"):
        decode_part(data)
