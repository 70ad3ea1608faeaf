"""Data directories whose epochs `ternmq broker repair-epoch` can lower."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ternmq_broker.replication.role.epoch_repair import load_record, repaired, save_record
from ternmq_broker.state.epochs import newest
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_console.directory_owner import check_owner
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import StoreNotFound
from ternmq_model.route import BrokerMember
from ternmq_nameserver.epoch_store import FILE_NAME, load_epochs
from ternmq_nameserver.epoch_table import EpochTable, epoch_table_from_json
from ternmq_nameserver.kv_store import LOCKED_NAME, lock_of_nameserver
from ternmq_runtime.directory_lock import DirectoryLock
from ternmq_runtime.table_store import save_table
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.disk.layout import commit_log_folder, lock_path


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDirectory:
    """Data directory of a stopped broker or NameServer.

    Attributes:
        root: Path of the directory.
        cluster: Cluster of the broker name; None = the directory does not name it.
        before: Epochs of the directory, as text.
        after: Function that returns the repaired epochs as text, given the highest epoch that
            began; None = both generations of the file are correct.
        repair: Function that repairs the directory durably, given that epoch. Blocks.
        is_nameserver: True = a NameServer owns the directory; False = a broker.
        is_known: The directory names the broker.
        is_alone: No other member has ever had the log.
        is_master: A master owns the directory.
        store_id: Id of the log's store.
        newest: Highest possible epoch of the log.
        members: Members that the directory lists, its owner included.
    """

    root: Path
    cluster: str | None
    before: str
    after: Callable[[int], str | None]
    repair: Callable[[int], None]
    is_nameserver: bool = False
    is_known: bool = False
    is_alone: bool = False
    is_master: bool = False
    store_id: str = ""
    newest: int = 0
    members: Sequence[BrokerMember] = ()


def open_directory(
    root: Path, broker: str, cluster: str | None, stack: ExitStack
) -> EpochDirectory:
    """Return a data directory, locked until `stack` ends.

    A directory with the files of a broker and a NameServer counts as the broker's. The path of
    the file of epochs stands for the NameServer's.

    Raises:
        StoreNotFound: The directory has neither files of a broker nor of a NameServer.
        StoreLocked: The owner of the directory runs.
        UsageError: The directory belongs to another user.
        StoreError: A file of the directory cannot be read.
    """
    if root.name == FILE_NAME:
        return _of_nameserver(root.parent, *open_epochs(root.parent, stack), broker, cluster)
    is_member = commit_log_folder(root).is_dir()
    if not is_member and not _is_nameserver(root):
        raise StoreNotFound(f"{root} is the data directory of no broker and no NameServer")
    if is_member:
        check_owner(root)
        stack.callback(RealFileSystem().lock(lock_path(root)).release)
        return _of_member(root, cluster)
    return _of_nameserver(root, *open_epochs(root, stack), broker, cluster)


def open_epochs(root: Path, stack: ExitStack) -> tuple[Path, EpochTable]:
    """Return a NameServer's file of epochs and its content, locked until `stack` ends.

    Raises:
        StoreNotFound: The directory has no files of a NameServer.
        StoreLocked: The NameServer runs.
        UsageError: The directory belongs to another user.
        StoreError: The file cannot be read.
    """
    lock_nameserver(root, stack)
    path = root / FILE_NAME
    return path, load_epochs(path)


def lock_nameserver(root: Path, stack: ExitStack) -> None:
    """Lock the data directory of a stopped NameServer until `stack` ends.

    Raises:
        StoreNotFound: The directory has no files of a NameServer.
        StoreLocked: The NameServer runs.
        UsageError: The directory belongs to another user.
    """
    if not _is_nameserver(root):
        raise StoreNotFound(f"{root} is the data directory of no NameServer")
    check_owner(root)
    if lock_path(root).exists() and not commit_log_folder(root).is_dir():
        stack.callback(DirectoryLock(root).release)  # what a NameServer of an older version locks
    stack.callback(lock_of_nameserver(root).release)


def _is_nameserver(root: Path) -> bool:
    return any((root / name).exists() for name in (FILE_NAME, LOCKED_NAME))


def _of_member(root: Path, cluster: str | None) -> EpochDirectory:
    files = RealFileSystem()
    kept, previous = load_record(files, root)

    def after(real: int) -> str | None:
        wanted = repaired(kept, real=real)
        is_right = previous is not None and repaired(previous, real=real) == previous
        return None if is_right and wanted == kept else _text_of(wanted)

    return EpochDirectory(
        root=root,
        cluster=cluster,
        before=_text_of(kept),
        after=after,
        repair=lambda real: save_record(files, root, repaired(kept, real=real)),
        is_alone=not kept.is_replicated,
        is_master=kept.is_master is not False,
        store_id=kept.store_id,
        newest=newest(repaired(kept, real=0).epochs),
        members=[each for each in kept.members if each.endpoints],
    )


def _of_nameserver(
    root: Path, path: Path, table: EpochTable, broker: str, cluster: str | None
) -> EpochDirectory:
    previous = table
    with suppress(OSError, ValueError):
        previous = epoch_table_from_json(path.with_name(f"{FILE_NAME}.bak").read_bytes())
    clusters = [of for (of, name), _ in table if name == broker]
    if cluster is None and len(clusters) == 1:
        cluster = clusters[0]
    name = (cluster or "DefaultCluster", broker)
    epoch = table.get(*name)

    def real_one(real: int) -> int:
        return real if doubt_of(epoch, real) or doubt_of(real, epoch) else epoch

    def after(real: int) -> str | None:
        is_right = epoch == previous.get(*name) == real_one(real)
        return None if is_right and (path.exists() or not epoch) else str(real_one(real))

    return EpochDirectory(
        root=root,
        cluster=cluster,
        before=str(epoch or ""),
        after=after,
        repair=lambda real: save_table(path, table.repaired(*name, real_one(real))),
        is_nameserver=True,
        is_known=bool(epoch),
    )


def _text_of(kept: ReplicationRecord) -> str:
    return f"log {newest(kept.epochs)}, highest {kept.highest_known}"
