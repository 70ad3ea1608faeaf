from ternmq_broker.replication.role.membership import ReplicaView


def test_broker_id_other_than_0_is_a_slave() -> None:
    assert not ReplicaView(0).is_slave
    assert ReplicaView(100).is_slave
    assert ReplicaView(0).epochs == ()
    assert not ReplicaView(0).slaves()
