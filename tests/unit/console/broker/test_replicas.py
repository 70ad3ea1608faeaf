"""What the console shows of the members of a broker name."""

from typing import Self

import pytest
from click.testing import CliRunner

from ternmq_client.admin.replication import MemberView
from ternmq_console.broker.replicas import (
    draining_note,
    epoch_lines,
    last_epoch,
    lonely_note,
    member_rows,
    table_rows,
)
from ternmq_console.broker.settings import drain
from ternmq_console.cli import admin_query
from ternmq_model.address import Address
from ternmq_model.errors import Unreachable
from ternmq_model.route import BrokerData, BrokerMember
from ternmq_protos.v1 import replication_pb2 as pb

MASTER = BrokerMember(0, (Address("a-0", 1),), 5)
SLAVES = [BrokerMember(number, (Address(f"a-{number}", 1),), 5) for number in (1, 2)]
DATA = BrokerData("c", "a", (MASTER, *SLAVES))


def test_reports_of_master_and_slave_about_a_slave_are_one_row() -> None:
    master = pb.ReplicationStatusReply(
        role="sync_master",
        slave_id=100,
        epochs=[pb.Epoch(number=1, start=0), pb.Epoch(number=5, start=100)],
        in_sync_now=2,
        in_sync_replicas=2,
        followers=[
            pb.FollowerStatus(
                broker_id=1, is_in_sync=True, safe_offset=90, lag_bytes=10, lag_ms=1500
            ),
            pb.FollowerStatus(broker_id=2, safe_offset=50, lag_bytes=50, lag_ms=4000),
        ],
    )
    slave = pb.ReplicationStatusReply(
        role="slave",
        slave_id=1,
        safe_offset=95,
        following=pb.FollowingStatus(is_connected=True, metadata_age_ms=700),
    )
    views = [
        MemberView(DATA, MASTER, master),
        MemberView(DATA, SLAVES[0], slave),
        MemberView(DATA, SLAVES[1], problem="nobody listens"),
    ]
    first, second, third = member_rows(views)
    assert (first["role"], first["epoch"]) == ("sync_master", 5)
    assert (first["id"], first["slave_id"], first["address"]) == (0, 100, "a-0:1")
    assert (second["id"], second["slave_id"], second["address"]) == (1, 1, "a-1:1")
    assert (third["slave_id"], third["address"]) == (None, "a-2:1")
    assert (first["in_sync"], first["in_sync_now"], first["in_sync_replicas"]) == (True, 2, 2)
    assert [row["in_sync"] for row in table_rows([first, second])] == ["2, needs 2", True]
    assert (second["connected"], second["in_sync"]) == (True, True)
    assert (second["safe_offset"], second["lag_bytes"], second["lag_s"]) == (90, 10, 1.5)
    assert second["metadata_age_s"] == 0.7
    assert (third["id"], third["problem"], third["role"]) == (2, "nobody listens", None)
    # It does not answer, but its master still knows how far it is.
    assert (third["in_sync"], third["lag_bytes"], third["lag_s"]) == (False, 50, 4.0)


def test_slave_reports_itself_without_its_master() -> None:
    slave = pb.ReplicationStatusReply(
        role="slave",
        safe_offset=95,
        following=pb.FollowingStatus(
            problem="no master", lag_bytes=7, lag_ms=2000, metadata_age_ms=-1
        ),
    )
    [row] = member_rows([MemberView(DATA, SLAVES[0], slave)])
    assert (row["connected"], row["in_sync"], row["problem"]) == (False, False, "no master")
    assert (row["safe_offset"], row["lag_bytes"], row["lag_s"]) == (95, 7, 2.0)
    assert row["metadata_age_s"] is None


def test_fenced_member_reports_it_and_a_log_without_epochs_is_in_epoch_0() -> None:
    fenced = pb.ReplicationStatusReply(role="async_master", is_fenced=True, highest_epoch=1000)
    [row] = member_rows([MemberView(DATA, MASTER, fenced)])
    assert row["problem"] == "fenced by epoch 1000"
    assert last_epoch(fenced) == 0


def test_promotion_that_fails_says_that_the_master_drains_still() -> None:
    draining = pb.ReplicationStatusReply(role="async_master", is_draining=True)
    views = [MemberView(DATA, MASTER, draining), MemberView(DATA, SLAVES[0])]
    assert "`ternmq broker undrain a`" in draining_note(views)
    draining.is_draining = False
    assert draining_note(views) == ""


def test_drain_says_when_no_slave_follows() -> None:
    master = MemberView(DATA, MASTER, pb.ReplicationStatusReply(is_draining=True))
    status = pb.ReplicationStatusReply(role="slave")
    assert lonely_note([master]).startswith("no slave follows it")
    assert lonely_note([master, MemberView(DATA, SLAVES[0])])
    assert lonely_note([master, MemberView(DATA, SLAVES[0], status)])
    status.following.is_connected = True
    assert lonely_note([master, MemberView(DATA, SLAVES[0], status)]) == ""


def test_draining_master_is_a_problem() -> None:
    draining = pb.ReplicationStatusReply(role="async_master", is_draining=True)
    [row] = member_rows([MemberView(DATA, MASTER, draining)])
    assert row["problem"] == "draining: sends to it wait"


def test_epochs_that_members_share_are_shown_once() -> None:
    first, second = pb.Epoch(number=1, start=0), pb.Epoch(number=5, start=100)
    views = [
        MemberView(DATA, MASTER, pb.ReplicationStatusReply(epochs=[first, second])),
        MemberView(DATA, SLAVES[0], pb.ReplicationStatusReply(epochs=[first, second])),
        MemberView(DATA, SLAVES[1], pb.ReplicationStatusReply(epochs=[first])),
    ]
    assert epoch_lines(views) == [
        "epochs of ids 0, 1: 1 from 0, 5 from 100",
        "epochs of id 2: 1 from 0",
    ]
    assert epoch_lines([MemberView(DATA, MASTER, problem="nobody listens")]) == []
    assert epoch_lines([MemberView(DATA, MASTER, pb.ReplicationStatusReply())]) == [
        "epochs of id 0: none"
    ]


class Draining:
    """An admin client whose master takes the setting, and who then finds no member."""

    def __init__(self, changed: list[dict[str, str]]) -> None:
        self._changed = changed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def master_of(self, _broker: str) -> BrokerData:
        return DATA

    async def update_settings(self, _broker: str, values: dict[str, str]) -> None:
        self._changed.append(values)

    async def member_views(self, *, broker: str) -> list[MemberView]:
        raise Unreachable(f"no NameServer tells of {broker}")


def test_drain_that_is_done_succeeds_though_nobody_tells_who_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed: list[dict[str, str]] = []

    def client(**_settings: object) -> Draining:
        return Draining(changed)

    monkeypatch.setattr(admin_query, "AdminClient", client)
    result = CliRunner().invoke(drain, ["a"])
    assert result.exit_code == 0, result.output
    assert changed == [{"broker.draining": "true"}]
    assert "the slaves are unknown: no NameServer tells of a" in result.output
