"""Resets of offsets, as brokers tell of them on a Session."""

from collections.abc import Callable

from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_runtime.service import OwnedTasks


def resets_of(
    group: str, reset: Callable[[MessageQueue, QueueOffset, int], None]
) -> Callable[[groups.SessionReply, str], None]:
    """Return what takes a broker's `offsets_reset` and tells `reset` of each queue of `group`."""

    def take(reply: groups.SessionReply, broker_name: str) -> None:
        told = reply.offsets_reset
        if told.group == group:
            for each in told.offsets:
                queue = MessageQueue(each.topic, broker_name, each.queue_id)
                reset(queue, QueueOffset(each.offset), each.version)

    return take


def looks_for_resets(
    tasks: OwnedTasks, offsets: RemoteOffsetStore
) -> Callable[[groups.SessionReply, str], None]:
    """Return what has `offsets` look for resets at each broker whose Session is open anew."""

    def look(_welcome: groups.SessionReply, broker_name: str) -> None:
        tasks.spawn(offsets.look_for_resets(broker_name), f"look for resets at {broker_name}")

    return look
