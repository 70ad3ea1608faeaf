from google.protobuf.descriptor import FileDescriptor

from ternmq_protos.v1 import (
    admin_pb2,
    common_pb2,
    groups_pb2,
    messages_pb2,
    nameserver_pb2,
    replication_pb2,
    transactions_pb2,
)
from ternmq_remoting.rpc import StreamRpc, UnaryRpc
from ternmq_remoting.service_methods import ALL

FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (
        common_pb2,
        admin_pb2,
        groups_pb2,
        messages_pb2,
        nameserver_pb2,
        replication_pb2,
        transactions_pb2,
    )
)


def test_constants_equal_the_rpcs_of_the_proto_files() -> None:
    told = {
        f"/{service.full_name}/{method.name}": (
            method.input_type.full_name,
            method.output_type.full_name,
            (method.client_streaming, method.server_streaming),
        )
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    }
    ours = {
        rpc.path: (
            rpc.request.DESCRIPTOR.full_name,
            rpc.reply.DESCRIPTOR.full_name,
            (isinstance(rpc, StreamRpc),) * 2,
        )
        for rpc in ALL
    }
    assert ours == told
    assert len(ours) == len(ALL)


def test_every_unary_reply_can_refuse_and_success_is_an_answer() -> None:
    for rpc in ALL:
        if isinstance(rpc, UnaryRpc):
            field = rpc.reply.DESCRIPTOR.fields_by_name["status"]
            assert field.message_type is common_pb2.Status.DESCRIPTOR
            assert 0 in rpc.answers
