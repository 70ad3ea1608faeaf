import pytest

from ternmq_model.errors import InvalidParameter
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.requests import UnparsableRequest, enum_fields, request_parser


def hello(**fields: int) -> bytes:
    member = groups.ConsumerGroup(group="G")
    for name, value in fields.items():
        setattr(member, name, value)
    return groups.SessionRequest(hello=groups.Hello(consumer_groups=[member])).SerializeToString()


def test_request_with_known_numbers_is_parsed() -> None:
    parse = request_parser(groups.SessionRequest)
    parsed = parse(hello(model=groups.BROADCASTING, consume_from=groups.TIMESTAMP))
    assert parsed.hello.consumer_groups[0].model == groups.BROADCASTING
    assert parse(b"") == groups.SessionRequest()


@pytest.mark.parametrize("name", ["model", "consume_from"])
@pytest.mark.parametrize("number", [-1, 4, 2**31 - 1])
def test_unknown_number_at_any_depth_is_refused_by_name(name: str, number: int) -> None:
    with pytest.raises(InvalidParameter, match=f"{name} {number}: must be one of 0 .* 2 "):
        request_parser(groups.SessionRequest)(hello(**{name: number}))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(UnparsableRequest, match="the bytes are no SendRequest"):
        request_parser(messages.SendRequest)(b"\xff" * 9)


def test_messages_without_enums_are_not_searched() -> None:
    assert not enum_fields(messages.SendStreamRequest.DESCRIPTOR)
