"""Hold the contracts against what was promised: services of different versions talk to each other.

`contract.json` lists every field, enum value and RPC. What stands there may neither go nor change;
what is new is added by `make protos`.

    python protos/breaking.py             compare; exit code 1 when a promise is broken
    python protos/breaking.py --refresh   the same, then write down what is new
"""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

ROOT = Path(__file__).parent
SNAPSHOT = ROOT / "contract.json"

Contract = Mapping[str, str]
"""Promise of a contract: a line that names a thing by its number, and its present form."""


def contract_files() -> list[FileDescriptor]:
    """Return the descriptors of every file under `ternmq/v1`, as generated."""
    names = sorted(path.stem for path in (ROOT / "ternmq" / "v1").glob("*.proto"))
    modules = (importlib.import_module(f"ternmq_protos.v1.{name}_pb2") for name in names)
    return [module.DESCRIPTOR for module in modules]


def contract_of(files: list[FileDescriptor]) -> Contract:
    """Return all that `files` promise, sorted."""
    return dict(sorted(line for file in files for line in _file_lines(file)))


def broken_promises(promised: Contract, found: Contract) -> list[str]:
    """Return what `found` no longer keeps of `promised`."""
    return [
        f"{thing}: was {was!r}, is {found.get(thing, 'gone')!r}"
        for thing, was in promised.items()
        if found.get(thing) != was
    ]


def additions(promised: Contract, found: Contract) -> list[str]:
    """Return what `found` has beyond `promised`."""
    return [f"{thing}: {what}" for thing, what in found.items() if thing not in promised]


def read_snapshot() -> Contract:
    """Return the promises of `contract.json`; none when there is no such file."""
    return json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}


def _file_lines(file: FileDescriptor) -> Iterator[tuple[str, str]]:
    told = FileDescriptorProto.FromString(file.serialized_pb)
    for message in told.message_type:
        yield from _message_lines(told.package, message)
    for enum in told.enum_type:
        yield from _enum_lines(told.package, enum)
    for service in told.service:
        for method in service.method:
            yield f"rpc /{told.package}.{service.name}/{method.name}", _method_text(method)


def _message_lines(scope: str, message: DescriptorProto) -> Iterator[tuple[str, str]]:
    name = f"{scope}.{message.name}"
    yield f"message {name}", "message"
    for field in message.field:
        yield f"message {name} = {field.number}", _field_text(message, field)
    for nested in message.nested_type:
        yield from _message_lines(name, nested)
    for enum in message.enum_type:
        yield from _enum_lines(name, enum)


def _enum_lines(scope: str, enum: EnumDescriptorProto) -> Iterator[tuple[str, str]]:
    for value in enum.value:
        yield f"enum {scope}.{enum.name} = {value.number}", value.name


def _field_text(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    many = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    group = ""
    if field.HasField("oneof_index"):
        group = f" oneof {message.oneof_decl[field.oneof_index].name}"
    return f"{many}{field.type_name.removeprefix('.') or kind} {field.name}{group}"


def _method_text(method: MethodDescriptorProto) -> str:
    asked = ("stream " if method.client_streaming else "") + method.input_type.removeprefix(".")
    told = ("stream " if method.server_streaming else "") + method.output_type.removeprefix(".")
    return f"{asked} -> {told}"


def main(*, refresh: bool) -> None:
    """Compare, print what is broken or new, and write the snapshot if asked to.

    Raises:
        SystemExit: A promise is broken; the snapshot is unchanged.
    """
    promised, found = read_snapshot(), contract_of(contract_files())
    if broken := broken_promises(promised, found):
        raise SystemExit("the contracts break what was promised:\n" + "\n".join(broken))
    for line in additions(promised, found):
        print(f"new: {line}")
    if refresh:
        SNAPSHOT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(refresh="--refresh" in sys.argv[1:])
