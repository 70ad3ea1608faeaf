import asyncio
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ternmq_model.address import Address
from ternmq_protos.v1 import groups_pb2
from ternmq_remoting.reflection import V1, V1ALPHA, ReflectionService, Request
from ternmq_remoting.rpc import Call

SERVICE = ReflectionService([groups_pb2.DESCRIPTOR])


class OneRequest:
    """A stream of one request, with the replies to it."""

    def __init__(self, request: Any) -> None:
        self._requests = [request]
        self.replies: list[Any] = []

    async def read(self) -> Any:
        return self._requests.pop() if self._requests else None

    async def write(self, message: Any, /) -> None:
        self.replies.append(message)


def ask(**question: Any) -> Any:
    requests = OneRequest(Request(host="h", **question))
    asyncio.run(SERVICE.serve(requests, Call(Address("127.0.0.1", 1))))
    (reply,) = requests.replies
    return reply


def files(reply: Any) -> list[str]:
    response = reply.file_descriptor_response
    return [FileDescriptorProto.FromString(each).name for each in response.file_descriptor_proto]


def test_reflection_lists_the_services_given() -> None:
    reply = ask(list_services="*")
    assert [service.name for service in reply.list_services_response.service] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "ternmq.v1.Groups",
    ]
    assert reply.valid_host == "h"
    assert reply.original_request.list_services == "*"


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "ternmq/v1/groups.proto"},
        {"file_containing_symbol": "ternmq.v1.Groups"},
        {"file_containing_symbol": "ternmq.v1.Groups.Session"},
        {"file_containing_symbol": "ternmq.v1.Hello.client_id"},
        {"file_containing_symbol": "ternmq.v1.MessageModel"},
    ],
)
def test_file_comes_first_with_all_its_imports(question: dict[str, str]) -> None:
    first, *others = files(ask(**question))
    assert first == "ternmq/v1/groups.proto"
    assert sorted(others) == ["ternmq/v1/common.proto", "ternmq/v1/messages.proto"]


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "nowhere.proto"},
        {"file_containing_symbol": "ternmq.v1.Nothing"},
        {"all_extension_numbers_of_type": "ternmq.v1.Nothing"},
        {"all_extension_numbers_of_type": "ternmq.v1.Hello.client_id"},
        {"file_containing_extension": {"containing_type": "ternmq.v1.Hello"}},
    ],
)
def test_unknown_symbols_are_not_found(question: dict[str, Any]) -> None:
    assert ask(**question).error_response.error_code == 5


def test_messages_of_ours_have_no_extensions() -> None:
    reply = ask(all_extension_numbers_of_type="ternmq.v1.Hello")
    assert reply.all_extension_numbers_response.base_type_name == "ternmq.v1.Hello"
    assert not reply.all_extension_numbers_response.extension_number


def test_versions_differ_in_their_package_only() -> None:
    (new,), (old,) = (
        ask(file_containing_symbol=each).file_descriptor_response.file_descriptor_proto
        for each in (V1, V1ALPHA)
    )
    old = FileDescriptorProto.FromString(old)
    old.ClearField("options")
    renamed = str(old).replace("v1alpha", "v1")
    assert str(FileDescriptorProto.FromString(new)) == renamed != str(old)


def test_descriptors_of_v1_stay_out_of_the_default_pool() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileContainingSymbol(V1)


def test_files_that_are_not_served_are_unknown() -> None:
    assert ask(file_by_filename="google/protobuf/descriptor.proto").error_response.error_code == 5
    assert ask(file_containing_symbol="ternmq.v1.Admin").error_response.error_code == 5


def test_empty_request_is_refused() -> None:
    assert ask().error_response.error_code == 3
