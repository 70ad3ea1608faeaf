"""What a member of a broker name is."""

import pytest

from ternmq_broker.replication.replica_view import ReplicaView, ended_at
from ternmq_broker.state.epochs import Epoch
from ternmq_model.offsets import PhysicalOffset

EPOCHS = tuple(Epoch(number, PhysicalOffset(start)) for number, start in ((1, 0), (3, 70), (9, 70)))


@pytest.mark.parametrize(("number", "end"), [(0, 0), (1, 70), (2, 70), (3, 70), (9, None)])
def test_epoch_ends_where_a_later_one_begins(number: int, end: int | None) -> None:
    assert ended_at(EPOCHS, number) == end
    assert ended_at((), number) is None


def test_broker_id_other_than_0_is_a_slave() -> None:
    assert not ReplicaView(0).is_slave
    assert ReplicaView(100).is_slave
    assert ReplicaView(0).epochs == ()
    assert not ReplicaView(0).slaves()
