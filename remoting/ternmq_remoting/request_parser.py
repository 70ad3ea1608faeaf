"""Parser of requests from the wire. Pure.

Protobuf keeps unknown numbers of enums. Handlers would have to check for them at every use, so this
parser refuses such requests.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from ternmq_model.errors import InvalidParameter, invalid
from ternmq_model.offsets import OFFSET_MAX
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import Req

Check = Callable[[Any], None]
"""Function that raises `InvalidParameter` for an unknown enum number in a message or value."""

ELEMENTS_MAX: Final = 1024
"""Most elements of one repeated field with enums. 4 MiB can hold two million elements; their check
would stop the event loop for seconds. Transactions and groups of one request have this limit too.
"""


class UnparsableRequest(InvalidParameter):
    """Error for bytes that are no message of the request's type."""


def request_parser(request: type[Req]) -> Callable[[bytes], Req]:
    """Return the parser of requests of one type.

    The parser raises `InvalidParameter` for an unknown enum number or for more than `ELEMENTS_MAX`
    elements with enums, and `UnparsableRequest` for bytes of another form.
    """
    from_bytes, check = request.FromString, enum_check(request.DESCRIPTOR)

    def parse(raw: bytes) -> Req:
        try:
            parsed = from_bytes(raw)
        except DecodeError:
            remark = f"the bytes are no {request.DESCRIPTOR.name}"
            raise UnparsableRequest(ResponseCode.INVALID_PARAMETER, remark) from None
        if check is not None:
            check(parsed)
        return parsed

    return parse


@cache
def enum_check(message: Descriptor) -> Check | None:
    """Return the check of a message type's enums at any depth; None = no enums."""
    checks = [check for field in message.fields if (check := _field_check(field)) is not None]
    if not checks:
        return None
    assert not message.GetOptions().map_entry, f"{message.full_name}: an enum in a map"

    def check_fields(parsed: Any) -> None:
        for check in checks:
            check(parsed)

    return check_fields


def _field_check(field: FieldDescriptor) -> Check | None:
    """Return the check of one field, whose argument is the message; None = no enums."""
    name, is_message = field.name, field.message_type is not None
    check = enum_check(field.message_type) if is_message else _number_check(field)
    if check is None:
        return None

    def check_elements(parsed: Any) -> None:
        elements = getattr(parsed, name)
        if len(elements) > ELEMENTS_MAX:
            raise invalid(f"{name}: {len(elements)} elements; at most {ELEMENTS_MAX} are allowed")
        for element in elements:
            check(element)

    def check_value(parsed: Any) -> None:
        if not is_message or parsed.HasField(name):
            check(getattr(parsed, name))

    # Protobuf 6 has no `is_repeated`, and 7 warns of `label`.
    return check_elements if field.default_value == [] else check_value


def _number_check(field: FieldDescriptor) -> Check | None:
    """Return the check of one number of an enum; None = the field is another scalar."""
    if field.enum_type is None:
        return None
    numbers = frozenset(field.enum_type.values_by_number)
    known = ", ".join(f"{one.number} ({one.name})" for one in field.enum_type.values)

    def check_number(number: int) -> None:
        if number not in numbers:
            raise invalid(f"{field.name} {number}: must be one of {known}")

    return check_number


def check_range(name: str, value: int, least: int, most: int = OFFSET_MAX) -> int:
    """Return the value of a request's field if it is in the range.

    Raises:
        RefusedError: The value is out of the range. The error names the field.
    """
    if not least <= value <= most:
        raise invalid(f"{name} is {value}; must be {least} to {most}")
    return value
