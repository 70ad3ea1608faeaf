import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from ternmq_broker.replication.role.epoch_repair import load_record, save_record
from ternmq_broker.state.epochs import Epoch
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_console.broker.epoch_directories import EpochDirectory, open_directory
from ternmq_console.directory_owner import check_owner
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_STEP_MAX
from ternmq_model.errors import StoreLocked, StoreNotFound, UsageError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember
from ternmq_nameserver.epoch_store import FILE_NAME, load_epochs
from ternmq_nameserver.epoch_table import EpochTable
from ternmq_runtime.table_store import save_table
from ternmq_store.disk.filesystem import RealFileSystem

FILES = RealFileSystem()
MADE_UP = 1 << 62
MEMBERS = (BrokerMember(0, (Address("a", 1),), 1), BrokerMember(1, (), 1))


def opened(root: Path, broker: str = "a", cluster: str | None = None) -> EpochDirectory:
    """Return a directory that is let go at once."""
    with ExitStack() as stack:
        return open_directory(root, broker, cluster, stack)


@pytest.fixture
def member(tmp_path: Path) -> Path:
    """Return the data directory of a master that keeps an epoch which nobody began."""
    for name in ("commitlog", "config"):
        (tmp_path / name).mkdir()
    epochs = (Epoch(1, PhysicalOffset(0)), Epoch(MADE_UP + 1, PhysicalOffset(60)))
    kept = ReplicationRecord(epochs=epochs, store_id="5f", is_replicated=True, members=MEMBERS)
    save_record(FILES, tmp_path, kept)
    return tmp_path


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """Return the data directory of a NameServer that keeps an epoch which nobody began."""
    table = EpochTable({("c", "a"): MADE_UP, ("c", "b"): 5, ("d", "b"): 6})
    save_table(tmp_path / FILE_NAME, table)
    return tmp_path


def test_directory_of_member_is_repaired(member: Path) -> None:
    found = opened(member)
    assert (found.store_id, found.newest, found.is_alone, found.is_master) == ("5f", 2, False, True)
    assert list(found.members) == [MEMBERS[0]]
    assert found.before == f"log {MADE_UP + 1}, highest {MADE_UP + 1}"
    assert found.after(2) == "log 2, highest 2"
    found.repair(2)
    assert opened(member).after(2) is None
    assert opened(member).after(3 * EPOCH_STEP_MAX) == f"log 2, highest {3 * EPOCH_STEP_MAX}"
    assert not list(member.glob("config/*.tmp"))


def test_directory_of_nameserver_is_repaired(names: Path) -> None:
    found = opened(names)
    assert (found.is_nameserver, found.is_known, found.cluster) == (True, True, "c")
    assert (found.before, found.after(7)) == (str(MADE_UP), "7")
    found.repair(7)
    assert opened(names).after(7) is opened(names).after(7 + EPOCH_STEP_MAX) is None
    assert opened(names).after(8 + EPOCH_STEP_MAX) == str(8 + EPOCH_STEP_MAX)
    assert dict(load_epochs(names / FILE_NAME)) == {("c", "a"): 7, ("c", "b"): 5, ("d", "b"): 6}
    assert (opened(names, "b").cluster, opened(names, "b", "d").before) == (None, "6")
    assert not opened(names, "x").is_known


def test_nameserver_that_lost_its_data_is_told_an_epoch(tmp_path: Path) -> None:
    (tmp_path / "nameserver.lock").mkdir()
    found = opened(tmp_path, cluster="c")
    assert (found.before, found.is_known, found.after(1)) == ("", False, None)
    found.repair(3 * EPOCH_STEP_MAX)
    assert opened(tmp_path).before == str(3 * EPOCH_STEP_MAX)


def test_repair_that_ended_between_two_generations_is_completed(member: Path) -> None:
    path = member / "config" / "replication.json"
    before = path.read_bytes()
    opened(member).repair(2)
    path.with_name(f"{path.name}.bak").write_bytes(before)
    assert opened(member).after(2) == "log 2, highest 2"
    opened(member).repair(2)
    path.unlink()
    assert opened(member).after(2) == "log 2, highest 2"
    opened(member).repair(2)
    kept, previous = load_record(FILES, member)
    assert kept == previous
    assert opened(member).after(2) is None


def test_nameservers_repair_that_ended_between_two_generations_is_completed(names: Path) -> None:
    before = (names / FILE_NAME).read_bytes()
    opened(names).repair(7)
    (names / f"{FILE_NAME}.bak").write_bytes(before)
    assert opened(names).after(7) == "7"
    opened(names).repair(7)
    (names / FILE_NAME).unlink()
    assert opened(names).after(7) is None  # reading it has written it again
    assert (names / FILE_NAME).exists()


def test_directory_of_both_is_the_members_unless_the_file_of_epochs_is_named(member: Path) -> None:
    save_table(member / FILE_NAME, EpochTable({("c", "a"): 5}))
    assert not opened(member).is_nameserver
    assert opened(member / FILE_NAME).before == "5"


def test_directory_in_use_is_refused(member: Path) -> None:
    with ExitStack() as stack:
        open_directory(member, "a", None, stack)
        with pytest.raises(StoreLocked):
            opened(member)


def test_directory_of_nobody_is_refused(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreNotFound, match="of no broker and no NameServer"):
            opened(root)


def test_directory_of_another_user_is_refused(
    member: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_owner(member)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match=f"belongs to the user with id {os.getuid()}"):
        opened(member)
    assert not (member / "lock").exists()
