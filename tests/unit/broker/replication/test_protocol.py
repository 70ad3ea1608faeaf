import pytest

from ternmq_broker.replication.protocol import ProtocolBroken, epochs_from_pb, epochs_to_pb
from ternmq_broker.state.epochs import Epoch, Epochs
from ternmq_model.offsets import PhysicalOffset


def epochs(*pairs: tuple[int, int]) -> Epochs:
    return tuple(Epoch(number, PhysicalOffset(start)) for number, start in pairs)


def test_epochs_survive_the_wire_round_trip() -> None:
    told = epochs((1, 0), (2, 0), (1000, 70))
    assert epochs_from_pb(epochs_to_pb(told)) == told


@pytest.mark.parametrize("told", [[(0, 0)], [(1, -1)], [(2, 0), (2, 5)], [(1, 5), (2, 4)]])
def test_epochs_that_do_not_ascend_are_refused(told: list[tuple[int, int]]) -> None:
    with pytest.raises(ProtocolBroken, match="ascend"):
        epochs_from_pb(epochs_to_pb(epochs(*told)))
