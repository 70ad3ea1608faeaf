from hypothesis import example, given
from hypothesis import strategies as st

from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.encoded_message import encode_pulled, encode_send_batch


@given(st.lists(st.binary(max_size=300), min_size=1), st.binary(), st.booleans(), st.booleans())
@example([bytes(1 << 20), b"\0"], bytes(8192), False, False)
@example([b"x" * 127], b"", True, True)
@example([b"x" * 128], b"\x80", False, True)
def test_encoded_batch_equals_the_wire_form_of_protobuf(
    pieces: list[bytes], sizes: bytes, is_retry: bool, is_whole: bool
) -> None:
    records = b"".join(pieces)
    flags = {"is_retry": is_retry, "is_whole": is_whole}
    wire = encode_send_batch(pieces, len(records), sizes, **flags).SerializeToString()
    batch = messages.SendBatch(records=records, record_sizes=sizes, **flags)
    expected = messages.SendStreamRequest(batch=batch)
    assert messages.SendStreamRequest.FromString(wire) == expected
    if records:
        assert wire == expected.SerializeToString(deterministic=True)


@given(st.lists(st.lists(st.binary(max_size=300)), max_size=3), st.integers(0, 1 << 40))
@example([[bytes(1 << 20), b"\0"]], 7)
@example([[b"x" * 127], [], [b"x" * 128]], 0)
def test_encoded_parts_of_pulls_are_the_wire_form_of_their_reply(
    drawn: list[list[bytes]], next_offset: int
) -> None:
    expected, wire = messages.PullStreamReply(), b""
    for handle, pieces in enumerate(drawn):
        others = messages.PulledRecords(handle=handle, next_offset=next_offset)
        wire += encode_pulled(pieces, sum(map(len, pieces)), others)
        expected.pulled.add(records=b"".join(pieces)).MergeFrom(others)
    assert messages.PullStreamReply.FromString(wire) == expected
