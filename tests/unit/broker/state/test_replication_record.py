from typing import Any

import pytest

from ternmq_broker.state.epochs import Epoch
from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.replication_record import (
    LogCut,
    ReplicationRecord,
    replication_record_from_dict,
)
from ternmq_model.address import Address
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember

FULL = ReplicationRecord(
    store_id="5f",
    epochs=(Epoch(1, PhysicalOffset(0)), Epoch(1000, PhysicalOffset(700))),
    highest_epoch=2000,
    is_master=False,
    is_unclean=True,
    is_replicated=True,
    confirmed=PhysicalOffset(650),
    master_role="sync_master",
    in_sync_replicas=2,
    cut=LogCut(600, False, 4096),
    members=(BrokerMember(0, (Address("a", 10911), Address("::1", 1)), 3),),
)


@pytest.mark.parametrize("kept", [ReplicationRecord(), FULL])
def test_replication_state_survives_round_trip(kept: ReplicationRecord) -> None:
    assert replication_record_from_dict(parse_json(write_json(kept.to_dict()))) == kept


def test_highest_epoch_is_of_the_log_or_heard_of() -> None:
    assert ReplicationRecord().highest_known == 0
    assert FULL.highest_known == 2000
    assert ReplicationRecord(epochs=FULL.epochs, highest_epoch=5).highest_known == 1000


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version 2: this program reads version 1"),
        ({"isMaster": "yes"}, "isMaster is 'yes', not true, false or null"),
        ({"isReplicated": None}, "isReplicated is None"),
        ({"storeId": 5}, "storeId is 5, not a text"),
        ({"confirmed": -1}, "confirmed is -1, below 0"),
        ({"epochs": [[2, 0], [1, 9]]}, "do not ascend"),
        ({"epochs": [[1, 9], [2, 8]]}, "do not ascend"),
        ({"epochs": [[0, 0]]}, "do not ascend"),
        ({"epochs": [["1", 0]]}, "epoch is '1', not a whole number"),
        ({"cut": 5}, "cut is 5, not an object"),
        ({"members": [5]}, "member is 5, not an object"),
    ],
)
def test_malformed_replication_state_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replication_record_from_dict(FULL.to_dict() | changes)


@pytest.mark.parametrize("name", sorted(FULL.to_dict()))
def test_missing_member_is_refused(name: str) -> None:
    content = FULL.to_dict()
    del content[name]
    with pytest.raises((ValueError, LookupError)):
        replication_record_from_dict(content)
