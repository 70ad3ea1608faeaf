from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ternmq_protos.v1 import groups_pb2
from ternmq_remoting.public_services import (
    HEALTH,
    REFLECTION_V1,
    REFLECTION_V1ALPHA,
    message_class,
)
from ternmq_remoting.reflection import DescriptorIndex, ReflectionService

INDEX = DescriptorIndex([groups_pb2.DESCRIPTOR, HEALTH, REFLECTION_V1, REFLECTION_V1ALPHA])
Request = message_class(REFLECTION_V1, "ServerReflectionRequest")


def ask(**question: Any) -> Any:
    return ReflectionService(REFLECTION_V1, INDEX).answer(Request(host="h", **question))


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


def test_empty_request_is_refused() -> None:
    assert ask().error_response.error_code == 3
