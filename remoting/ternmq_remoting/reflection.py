"""Service `grpc.reflection`: descriptions of a server for tools without .proto files."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Final, cast

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio

from ternmq_remoting.rpc import Call, Handler, ServerStream, StreamRpc, stream

Request = reflection_pb2.ServerReflectionRequest
Response = reflection_pb2.ServerReflectionResponse

# grpcio-reflection has only v1alpha. The messages of v1 have equal fields, so v1 needs only a path
# and a description of its own.
V1ALPHA: Final = "grpc.reflection.v1alpha.ServerReflection"
V1: Final = V1ALPHA.replace("v1alpha", "v1")


class ReflectionService:
    """Reflection on `files`, on health and on reflection itself.

    The files are in a pool of their own, so callers do not see other files of the process.
    """

    def __init__(self, files: Iterable[FileDescriptor]) -> None:
        # The stubs have another class of descriptors than protobuf's own.
        health, reflection = cast("Any", (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR))
        served: Sequence[FileDescriptor] = (*files, health)
        pool: Any = _Pool([*served, reflection])
        names = (each.full_name for file in served for each in file.services_by_name.values())
        self._servicer = aio.ReflectionServicer([*names, V1, V1ALPHA], pool)

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of v1, and of v1alpha for older tools."""
        return [
            stream(StreamRpc(service, "ServerReflectionInfo", Request, Response), self.serve)
            for service in (V1, V1ALPHA)
        ]

    async def serve(self, requests: ServerStream[Request, Response], _call: Call) -> None:
        """Answer requests until the caller ends the stream."""

        async def read() -> AsyncGenerator[Request]:
            while (request := await requests.read()) is not None:
                yield request

        # The stubs take the generator for a coroutine.
        responses = cast("Any", self._servicer).ServerReflectionInfo(read(), None)
        async for response in responses:
            response.valid_host = response.original_request.host
            await requests.write(response)


class _Pool:
    """Descriptor pool that finds methods too; protobuf's own pool does not."""

    def __init__(self, files: Iterable[FileDescriptor]) -> None:
        self._pool = DescriptorPool()
        for file in files:
            self._add(file)
        self._pool.Add(_v1_file())

    def _add(self, file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            self._add(dependency)
        self._pool.AddSerializedFile(file.serialized_pb)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        """Return the file of a symbol, or of the service with a method of that name."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindFileContainingSymbol(symbol.rpartition(".")[0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def _v1_file() -> FileDescriptorProto:
    """Return the description of v1, made from that of v1alpha."""
    file = FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
    file.name = file.name.replace("v1alpha", "v1")
    file.package = file.package.replace("v1alpha", "v1")
    file.ClearField("options")
    for message in file.message_type:
        for field in filter(lambda each: each.type_name, message.field):
            field.type_name = field.type_name.replace("v1alpha", "v1")
    for method in file.service[0].method:
        method.input_type = method.input_type.replace("v1alpha", "v1")
        method.output_type = method.output_type.replace("v1alpha", "v1")
    return file
