"""What is said of a cluster that is not as it should be."""

from typing import Any

import pytest

from ternmq_client.admin.cluster_health import problems_of
from ternmq_client.admin.nameserver_admin import NameServerView
from ternmq_client.admin.replication import MemberView
from ternmq_model.address import Address
from ternmq_model.route import BrokerData, BrokerMember
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import replication_pb2 as pb

MASTER = BrokerMember(0, (Address("a-0", 1),), 5)
SLAVE = BrokerMember(1, (Address("a-1", 1),), 5)
DATA = BrokerData("c", "a", (MASTER, SLAVE))
NAMES = [NameServerView(Address(host, 9876), (DATA,)) for host in ("n1", "n2")]


def master(**told: Any) -> MemberView:
    fields: dict[str, Any] = {
        "in_sync_replicas": 2,
        "in_sync_now": 2,
        "followers": [pb.FollowerStatus(broker_id=1, is_in_sync=True)],
    }
    return MemberView(DATA, MASTER, pb.ReplicationStatusReply(**fields | told))


def slave(**told: Any) -> MemberView:
    fields: dict[str, Any] = {"is_connected": True}
    following = pb.FollowingStatus(**fields | told)
    return MemberView(DATA, SLAVE, pb.ReplicationStatusReply(following=following))


def test_healthy_cluster_has_no_problems() -> None:
    for lag_bytes, lag_ms in ((0, 0), (100 << 20, 2_000), (10_000, 60_000)):
        whole = [master(), slave(lag_bytes=lag_bytes, lag_ms=lag_ms)]
        assert problems_of(whole, NAMES) == []


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([slave()], "a has no master: no producer can send to it"),
        (
            [MemberView(DATA, MASTER, problem="refused"), slave()],
            "a (id 0) does not answer: refused",
        ),
        (
            [master(is_fenced=True, highest_epoch=1000), slave()],
            "a (id 0) acknowledges nothing: there is a master of epoch 1000",
        ),
        (
            [master(is_draining=True), slave()],
            "a (id 0) is draining: sends to it wait for a promotion, or `undrain`",
        ),
        (
            [master(in_sync_now=1), slave()],
            "a (id 0) has too few members in sync: 1, needs 2",
        ),
        (
            [
                master(followers=[pb.FollowerStatus(broker_id=1, lag_bytes=9, lag_ms=1500)]),
                slave(),
            ],
            "a (id 0) does not wait for slave 1, which is 9 bytes and 1.5 s behind",
        ),
        (
            [master(), slave(is_connected=False, problem="another store")],
            "a (id 1) follows no master: another store",
        ),
        (
            [master(), slave(is_connected=False)],
            "a (id 1) follows no master: its master is not found",
        ),
        (
            [master(), slave(lag_bytes=1 << 30, lag_ms=4_000)],
            "a (id 1) is 1073741824 bytes and 4.0 s behind its master",
        ),
        (
            [MemberView(DATA, MASTER, store=admin.DescribeStoreReply(failure="I/O error"))],
            "a (id 0) stores no messages any more: I/O error",
        ),
        (
            [
                MemberView(
                    DATA,
                    MASTER,
                    broker=admin.DescribeBrokerReply(disk_level="full", disk_used_percent=96.4),
                )
            ],
            "a (id 0) refuses messages: its disk is 96 % full",
        ),
        ([], "no broker is registered"),
    ],
)
def test_problems_are_described_in_one_sentence(members: list[MemberView], says: str) -> None:
    assert problems_of(members, NAMES) == [says]


def test_silent_or_differing_nameservers_are_named() -> None:
    whole = [master(), slave()]
    silent = NameServerView(Address("n2", 9876), problem="nobody listens")
    assert problems_of(whole, [NAMES[0], silent]) == [
        "NameServer n2:9876 does not answer: nobody listens"
    ]
    alone = NameServerView(Address("n2", 9876), (BrokerData("c", "a", (MASTER,)),))
    assert problems_of(whole, [NAMES[0], alone]) == [
        "NameServers differ on a (id 1): n1:9876: a-1:1; n2:9876: not registered"
    ]
    older = BrokerMember(0, MASTER.endpoints, 4)
    old = NameServerView(Address("n2", 9876), (BrokerData("c", "a", (older, SLAVE)),))
    assert problems_of(whole, [NAMES[0], old]) == [
        "NameServers differ on a (id 0): n1:9876: a-0:1 epoch 5; n2:9876: a-0:1 epoch 4"
    ]
