"""`grpc.reflection`: a server tells what it serves, so that tools need no .proto files."""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor

from ternmq_remoting.public_services import REFLECTION_V1, REFLECTION_V1ALPHA, message_class
from ternmq_remoting.rpc import Call, Handler, ServerStream, StreamRpc, stream

_INVALID_ARGUMENT: Final = 3
_NOT_FOUND: Final = 5
"""gRPC's numbers of the statuses of these names."""


class DescriptorIndex:
    """The .proto files that some services need, by file name and by symbol. Never changes."""

    def __init__(self, files: Iterable[FileDescriptor]) -> None:
        self._files: dict[str, FileDescriptor] = {}
        self._file_of_symbol: dict[str, str] = {}
        self.services: list[str] = []
        for file in files:
            self._add(file)
            self.services.extend(each.full_name for each in file.services_by_name.values())
        self.services.sort()

    def file_named(self, name: str) -> list[bytes]:
        """Return a file's descriptor and those it imports, itself first; empty when unknown."""
        if name not in self._files:
            return []
        found = {name: self._files[name]}
        queue = [self._files[name]]
        while queue:
            for dependency in queue.pop().dependencies:
                if dependency.name not in found:
                    found[dependency.name] = dependency
                    queue.append(dependency)
        return [file.serialized_pb for file in found.values()]

    def file_with(self, symbol: str) -> list[bytes]:
        """Return, as `file_named`, the file that defines a service, message, enum or part of it."""
        while symbol:
            if (file := self._file_of_symbol.get(symbol)) is not None:
                return self.file_named(file)
            symbol = symbol.rpartition(".")[0]
        return []

    def has_message(self, name: str) -> bool:
        """Return whether a message of this full name is known."""
        file = self._files.get(self._file_of_symbol.get(name, ""))
        return file is not None and any(
            each.full_name == name for each in file.message_types_by_name.values()
        )

    def _add(self, file: FileDescriptor) -> None:
        if file.name in self._files:
            return
        self._files[file.name] = file
        for table in (file.message_types_by_name, file.enum_types_by_name, file.services_by_name):
            for each in table.values():
                self._file_of_symbol[each.full_name] = file.name
        for dependency in file.dependencies:
            self._add(dependency)


class _ReflectionRpc(StreamRpc[Any, Any]):
    """An RPC under the path that its .proto file gives it, which is none of a TernMQ contract."""

    __slots__ = ()

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


class ReflectionService:
    """Answers one version of the reflection service; the versions differ in their package only."""

    def __init__(self, file: FileDescriptor, index: DescriptorIndex) -> None:
        self._reply = message_class(file, "ServerReflectionResponse")
        self._rpc = _ReflectionRpc(
            file.services_by_name["ServerReflection"].full_name,
            "ServerReflectionInfo",
            message_class(file, "ServerReflectionRequest"),
            self._reply,
        )
        self._index = index

    def handler(self) -> Handler:
        """Return what serves it; a stream like any other, which ends when the server closes."""
        return stream(self._rpc, self.serve)

    def answer(self, request: Any) -> Any:
        """Return the reply to one request."""
        reply = self._reply(valid_host=request.host, original_request=request)
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in self._index.services:
                    reply.list_services_response.service.add(name=name)
            case "file_by_filename":
                self._put_files(reply, self._index.file_named(request.file_by_filename))
            case "file_containing_symbol":
                self._put_files(reply, self._index.file_with(request.file_containing_symbol))
            case "all_extension_numbers_of_type" if self._index.has_message(
                request.all_extension_numbers_of_type
            ):
                # proto3 has no extensions: a known message has none, an unknown one is an error.
                response = reply.all_extension_numbers_response
                response.base_type_name = request.all_extension_numbers_of_type
            case "file_containing_extension" | "all_extension_numbers_of_type":
                self._put_files(reply, [])
            case _:
                reply.error_response.error_code = _INVALID_ARGUMENT
                reply.error_response.error_message = "the request asks nothing"
        return reply

    async def serve(self, questions: ServerStream[Any, Any], _call: Call) -> None:
        """Answer until the caller has finished."""
        while (request := await questions.read()) is not None:
            await questions.write(self.answer(request))

    @staticmethod
    def _put_files(reply: Any, files: list[bytes]) -> None:
        if files:
            reply.file_descriptor_response.file_descriptor_proto.extend(files)
        else:
            reply.error_response.error_code = _NOT_FOUND
            reply.error_response.error_message = "unknown here"


def reflection_handlers(index: DescriptorIndex) -> list[Handler]:
    """Return the reflection services: v1, and v1alpha for tools that know only that."""
    return [
        ReflectionService(file, index).handler() for file in (REFLECTION_V1, REFLECTION_V1ALPHA)
    ]
