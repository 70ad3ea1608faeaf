"""Handlers of offset resets that brokers send on a Session."""

from collections.abc import Callable

from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_runtime.service import OwnedTasks


def resets_of(
    group: str, reset: Callable[[MessageQueue, QueueOffset, int], None]
) -> Callable[[groups.SessionReply, str], None]:
    """Return a handler of `offsets_reset` that calls `reset` for each queue of `group`."""

    def take(reply: groups.SessionReply, broker_name: str) -> None:
        command = reply.offsets_reset
        if command.group == group:
            for each in command.offsets:
                queue = MessageQueue(each.topic, broker_name, each.queue_id)
                reset(queue, QueueOffset(each.offset), each.version)

    return take


def looks_for_resets(
    tasks: OwnedTasks, offsets: RemoteOffsetStore
) -> Callable[[groups.SessionReply, str], None]:
    """Return a handler that queries a broker for resets when its Session is reopened."""

    def query(_welcome: groups.SessionReply, broker_name: str) -> None:
        tasks.spawn(offsets.look_for_resets(broker_name), f"look for resets at {broker_name}")

    return query
