"""Bytes from the wire as requests: the one place where a request is parsed. Pure.

A number that an enum of the contract does not have is kept by protobuf as it is. Handlers would
have to think of it wherever they name or compare one, so such a request is refused here.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from ternmq_model.errors import InvalidParameter
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import Req


class UnparsableRequest(InvalidParameter):
    """The bytes are no message of the request's type."""


def request_parser(request: type[Req]) -> Callable[[bytes], Req]:
    """Return the function that parses requests of one type.

    It raises `InvalidParameter` for a number that an enum of the request does not have, and
    `UnparsableRequest` for bytes that are no such message.
    """
    from_bytes, has_enums = request.FromString, bool(enum_fields(request.DESCRIPTOR))

    def parse(raw: bytes) -> Req:
        try:
            parsed = from_bytes(raw)
        except DecodeError:
            remark = f"the bytes are no {request.DESCRIPTOR.name}"
            raise UnparsableRequest(ResponseCode.INVALID_PARAMETER, remark) from None
        if has_enums:
            _check_enums(parsed)
        return parsed

    return parse


@cache
def enum_fields(message: Descriptor) -> Mapping[str, FieldDescriptor]:
    """Return the fields of `message` that are enums, or messages with such fields at any depth."""
    found = {
        field.name: field
        for field in message.fields
        if field.enum_type is not None
        or (field.message_type is not None and enum_fields(field.message_type))
    }
    assert not (found and message.GetOptions().map_entry), f"{message.full_name}: an enum in a map"
    return found


def _check_enums(message: Any) -> None:
    """Raise `InvalidParameter` for the first unknown number in an enum of `message`."""
    for name, field in enum_fields(message.DESCRIPTOR).items():
        value = getattr(message, name)
        for each in (value,) if isinstance(value, int | ProtoMessage) else value:
            if field.enum_type is None:
                _check_enums(each)
            elif each not in field.enum_type.values_by_number:
                known = ", ".join(f"{one.number} ({one.name})" for one in field.enum_type.values)
                remark = f"{field.name} {each}: must be one of {known}"
                raise InvalidParameter(ResponseCode.INVALID_PARAMETER, remark)
