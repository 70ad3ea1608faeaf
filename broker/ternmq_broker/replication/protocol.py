"""Epochs, times and errors of replication streams, for both of their ends. Pure."""

from collections.abc import Sequence
from typing import Final

from ternmq_broker.state.epochs import Epoch, Epochs
from ternmq_model.errors import ConnectionLost
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import replication_pb2 as replication

HEARTBEAT_MS: Final = 1_000
SILENCE_MAX_MS: Final = 15_000
"""Silence of the peer after which either side ends the stream."""


class ProtocolBroken(ConnectionLost):
    """Impossible message of a master, which ends the stream; the slave opens another one."""


def epochs_to_pb(epochs: Epochs) -> Sequence[replication.Epoch]:
    """Return epochs as messages of the wire."""
    return [replication.Epoch(number=each.number, start=each.start) for each in epochs]


def epochs_from_pb(epochs_pb: Sequence[replication.Epoch]) -> Epochs:
    """Return the epochs in a message of a peer.

    Raises:
        ProtocolBroken: The epochs do not ascend, or an offset is negative.
    """
    epochs = tuple(Epoch(each.number, PhysicalOffset(each.start)) for each in epochs_pb)
    before = Epoch(0, PhysicalOffset(0))
    for after in epochs:
        if after.number <= before.number or after.start < before.start:
            raise ProtocolBroken(f"its epochs do not ascend: {after} follows {before}")
        before = after
    return epochs
