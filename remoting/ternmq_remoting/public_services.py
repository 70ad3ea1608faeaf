"""The messages of the public gRPC services `grpc.health.v1` and `grpc.reflection`.

Python allows a message name once per descriptor pool, and whoever also installs
`grpcio-health-checking` or `grpcio-reflection` has these names in the default pool
already. So they are described here field by field, and live in a pool of their own.
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_POOL: Final = DescriptorPool()

_STRING: Final = FieldDescriptorProto.TYPE_STRING
_INT32: Final = FieldDescriptorProto.TYPE_INT32
_BYTES: Final = FieldDescriptorProto.TYPE_BYTES
_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE
_ENUM: Final = FieldDescriptorProto.TYPE_ENUM

SERVING: Final = 1
NOT_SERVING: Final = 2
SERVICE_UNKNOWN: Final = 3
"""Values of `HealthCheckResponse.ServingStatus`."""

_Field = tuple[str, int, "FieldDescriptorProto.Type.ValueType", str]
"""Name, number, type, and the name of the message or enum type."""


def _add_message(
    file: FileDescriptorProto,
    name: str,
    *fields: _Field,
    oneof: tuple[str, Sequence[str]] = ("", ()),
    repeated: Sequence[str] = (),
) -> None:
    message = file.message_type.add(name=name)
    oneof_name, members = oneof
    if oneof_name:
        message.oneof_decl.add(name=oneof_name)
    for field_name, number, kind, type_name in fields:
        label = (
            FieldDescriptorProto.LABEL_REPEATED
            if field_name in repeated
            else FieldDescriptorProto.LABEL_OPTIONAL
        )
        field = message.field.add(name=field_name, number=number, type=kind, label=label)
        if type_name:
            field.type_name = f".{file.package}.{type_name}"
        if field_name in members:
            field.oneof_index = 0


def _health_file() -> FileDescriptor:
    file = FileDescriptorProto(
        name="grpc/health/v1/health.proto", package="grpc.health.v1", syntax="proto3"
    )
    _add_message(file, "HealthCheckRequest", ("service", 1, _STRING, ""))
    status_type = "HealthCheckResponse.ServingStatus"
    _add_message(file, "HealthCheckResponse", ("status", 1, _ENUM, status_type))
    statuses = file.message_type[1].enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        statuses.value.add(name=name, number=number)
    service = file.service.add(name="Health")
    for name, streams in (("Check", False), ("Watch", True)):
        service.method.add(
            name=name,
            input_type=".grpc.health.v1.HealthCheckRequest",
            output_type=".grpc.health.v1.HealthCheckResponse",
            server_streaming=streams,
        )
    _POOL.Add(file)
    return _POOL.FindFileByName(file.name)


_QUESTIONS: Final[tuple[_Field, ...]] = (
    ("file_by_filename", 3, _STRING, ""),
    ("file_containing_symbol", 4, _STRING, ""),
    ("file_containing_extension", 5, _MESSAGE, "ExtensionRequest"),
    ("all_extension_numbers_of_type", 6, _STRING, ""),
    ("list_services", 7, _STRING, ""),
)
_ANSWERS: Final[tuple[_Field, ...]] = (
    ("file_descriptor_response", 4, _MESSAGE, "FileDescriptorResponse"),
    ("all_extension_numbers_response", 5, _MESSAGE, "ExtensionNumberResponse"),
    ("list_services_response", 6, _MESSAGE, "ListServiceResponse"),
    ("error_response", 7, _MESSAGE, "ErrorResponse"),
)


def _reflection_file(version: str) -> FileDescriptor:
    package = f"grpc.reflection.{version}"
    file = FileDescriptorProto(
        name=f"grpc/reflection/{version}/reflection.proto", package=package, syntax="proto3"
    )
    _add_message(
        file,
        "ServerReflectionRequest",
        ("host", 1, _STRING, ""),
        *_QUESTIONS,
        oneof=("message_request", [name for name, *_ in _QUESTIONS]),
    )
    extension = (("containing_type", 1, _STRING, ""), ("extension_number", 2, _INT32, ""))
    _add_message(file, "ExtensionRequest", *extension)
    _add_message(
        file,
        "ServerReflectionResponse",
        ("valid_host", 1, _STRING, ""),
        ("original_request", 2, _MESSAGE, "ServerReflectionRequest"),
        *_ANSWERS,
        oneof=("message_response", [name for name, *_ in _ANSWERS]),
    )
    files = ("file_descriptor_proto", 1, _BYTES, "")
    _add_message(file, "FileDescriptorResponse", files, repeated=[files[0]])
    base, numbers = ("base_type_name", 1, _STRING, ""), ("extension_number", 2, _INT32, "")
    _add_message(file, "ExtensionNumberResponse", base, numbers, repeated=[numbers[0]])
    services = ("service", 1, _MESSAGE, "ServiceResponse")
    _add_message(file, "ListServiceResponse", services, repeated=[services[0]])
    _add_message(file, "ServiceResponse", ("name", 1, _STRING, ""))
    error = (("error_code", 1, _INT32, ""), ("error_message", 2, _STRING, ""))
    _add_message(file, "ErrorResponse", *error)
    file.service.add(name="ServerReflection").method.add(
        name="ServerReflectionInfo",
        input_type=f".{package}.ServerReflectionRequest",
        output_type=f".{package}.ServerReflectionResponse",
        client_streaming=True,
        server_streaming=True,
    )
    _POOL.Add(file)
    return _POOL.FindFileByName(file.name)


def message_class(file: FileDescriptor, name: str) -> Any:
    """Return the class of a message of `file`; its fields are known at run time only."""
    return GetMessageClass(file.message_types_by_name[name])


HEALTH: Final = _health_file()
REFLECTION_V1: Final = _reflection_file("v1")
REFLECTION_V1ALPHA: Final = _reflection_file("v1alpha")

HealthRequest: Final = message_class(HEALTH, "HealthCheckRequest")
HealthReply: Final = message_class(HEALTH, "HealthCheckResponse")
