"""Messages of the handshake between master and slave: checks of `hello`, the answer. Pure."""

from typing import Final

from ternmq_broker.replication.protocol import ProtocolBroken, epochs_from_pb, epochs_to_pb
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.state.epochs import FollowFrom, MemberLog, StartEmptyLog, TruncateTo
from ternmq_model.errors import RefusedError, invalid, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import replication_pb2 as replication

_EPOCHS_MAX: Final = 100_000


def check_hello(hello: replication.FollowHello, member: Membership, *, file_bytes: int) -> None:
    """Refuse a slave of another broker name, or one whose log cannot become the master's.

    Raises:
        RefusedError: The slave may not follow.
    """
    identity = member.identity
    if (hello.cluster, hello.broker_name) != (identity.cluster, identity.name):
        raise not_permitted(
            f"this is broker {identity.name} of cluster {identity.cluster}, not"
            f" {hello.broker_name} of {hello.cluster}"
        )
    if hello.broker_id <= MASTER_ID:
        raise not_permitted(f"a slave has a broker_id above 0, not {hello.broker_id}")
    if hello.broker_id == member.slave_id:
        raise not_permitted(
            f"broker_id {hello.broker_id} is reserved for the master, which uses it as a slave"
        )
    if hello.log_file_bytes not in (0, file_bytes):
        raise not_permitted(
            f"the slave's log has files of {hello.log_file_bytes} bytes, the master's of"
            f" {file_bytes}: set store.commit_log_file_bytes, and empty the slave's data directory"
        )


def log_of(hello: replication.FollowHello) -> MemberLog:
    """Return the slave's description of its log.

    Raises:
        InvalidParameter: The description is impossible.
    """
    remark = "the slave's description of its log is impossible"
    if (
        len(hello.epochs) > _EPOCHS_MAX
        or not 0 <= hello.log_start <= hello.log_end
        or hello.highest_epoch < 0
    ):
        raise invalid(remark)
    try:
        epochs = epochs_from_pb(hello.epochs)
    except ProtocolBroken:
        raise invalid(remark) from None
    return MemberLog(
        epochs=epochs,
        start=PhysicalOffset(hello.log_start),
        end=PhysicalOffset(hello.log_end),
        store_id=hello.store_id,
        highest=hello.highest_epoch,
    )


def accepted(
    member: Membership, decided: FollowFrom | TruncateTo | StartEmptyLog, *, file_bytes: int
) -> replication.FollowAccepted:
    """Return the master's answer to a slave that may follow, at once or after a cut of its log."""
    reply = replication.FollowAccepted(
        store_id=member.state.store_id,
        epochs=epochs_to_pb(member.state.epochs),
        log_file_bytes=file_bytes,
        master_role=member.role.value,
        in_sync_replicas=member.replicas_needed,
    )
    match decided:
        case FollowFrom(start):
            reply.start = start
        case TruncateTo(keep_to):
            reply.start = keep_to
            reply.cut.keep_to = keep_to
        case StartEmptyLog(start):
            reply.start = start
            reply.cut.keep_to = start
            reply.cut.starts_over = True
    return reply


def not_permitted(remark: str) -> RefusedError:
    """Return the refusal of a slave that may not follow this master."""
    return refusal(ResponseCode.NO_PERMISSION, remark)
