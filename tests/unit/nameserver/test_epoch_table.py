import pytest

from ternmq_model.errors import RefusedError
from ternmq_nameserver.epoch_table import NAMES_MAX, EpochTable, epoch_table_from_json


def test_epoch_only_rises() -> None:
    table = EpochTable().raised("c", "a", 3)
    assert table.get("c", "a") == 3
    assert table.raised("c", "a", 2) is table
    assert table.raised("c", "a", 3) is table
    assert table.raised("c", "a", 4).get("c", "a") == 4
    assert table.get("other", "a") == table.get("c", "b") == 0


def test_repair_sets_an_epoch_in_either_direction() -> None:
    table = EpochTable().raised("c", "a", 1 << 62).raised("c", "b", 7)
    repaired = table.repaired("c", "a", 2)
    assert list(repaired) == [(("c", "a"), 2), (("c", "b"), 7)]
    assert repaired.repaired("c", "a", 5).get("c", "a") == 5


def test_epoch_that_older_versions_took_can_be_read() -> None:
    data = EpochTable({("c", "a"): (1 << 63) - 1}).to_json()
    assert epoch_table_from_json(data).get("c", "a") == (1 << 63) - 1
    with pytest.raises(ValueError, match="must be 1 to"):
        epoch_table_from_json(EpochTable({("c", "a"): 1 << 63}).to_json())


def test_name_without_an_epoch_is_not_kept() -> None:
    table = EpochTable()
    assert table.raised("c", "a", 0) is table


def test_epoch_table_survives_round_trip() -> None:
    table = EpochTable().raised("c", "a", 1000).raised("c", "ü", 1).raised("d", "a", 2)
    assert list(epoch_table_from_json(table.to_json())) == list(table)
    assert table.to_json() == epoch_table_from_json(table.to_json()).to_json()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[]", r"the file is \[\]"),
        (b"{}", "version None"),
        (b'{"version": 2, "epochs": {}}', "version 2: this program reads version 1"),
        (b'{"version": 1}', "epochs is None, not an object"),
        (b'{"version": 1, "epochs": {"c": 1}}', "cluster 'c' is 1, not an object"),
        (b'{"version": 1, "epochs": {"c": {"a": "1"}}}', "'c'/'a' must be 1 to"),
        (b'{"version": 1, "epochs": {"c": {"a": true}}}', "'c'/'a' must be 1 to"),
        (b'{"version": 1, "epochs": {"c": {"a": 0}}}', "'c'/'a' must be 1 to"),
        (b"\0\0", "Expecting value"),
    ],
)
def test_malformed_epoch_table_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        epoch_table_from_json(data)


def test_number_of_names_is_bounded() -> None:
    table = EpochTable({("c", str(number)): 2 for number in range(NAMES_MAX)})
    with pytest.raises(RefusedError, match=r"no more fit .*ternmq broker forget-epoch"):
        table.raised("c", "one more", 1)
    assert table.raised("c", "0", 3).get("c", "0") == 3
    assert table.repaired("c", "0", 0).raised("c", "one more", 1).get("c", "one more") == 1


def test_name_in_full_table_replaces_the_oldest_that_stands_at_its_first_epoch() -> None:
    epochs = {("c", str(number)): 2 for number in range(NAMES_MAX - 2)}
    table = EpochTable({**epochs, ("c", "z"): 1, ("c", "y"): 1})
    table = table.raised("c", "one more", 7)
    assert (len(table), table.get("c", "z"), table.get("c", "y")) == (NAMES_MAX, 0, 1)
    table = table.raised("c", "y", 2).raised("c", "one more", 8)
    with pytest.raises(RefusedError, match="no more fit"):
        table.raised("c", "z", 1)


def test_forgotten_name_may_come_back() -> None:
    table = EpochTable({("c", "a"): 1000, ("d", "a"): 1})
    assert list(table.repaired("c", "a", 0)) == [(("d", "a"), 1)]
    assert table.repaired("c", "b", 0) is table
    assert table.repaired("c", "a", 0).raised("c", "a", 1).get("c", "a") == 1
