"""Replication record of a member: `config/replication.json`. Pure.

docs/formats/replication-state.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ternmq_broker.state.epochs import Epoch, Epochs, newest
from ternmq_broker.state.fastjson import as_int
from ternmq_model.address import Address
from ternmq_model.json_checksum import as_object
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember

FORMAT_VERSION: Final = 1

_NOWHERE: Final = PhysicalOffset(0)


class LogCut(NamedTuple):
    """Planned cut of a log, made while the log is closed, so that its member can follow."""

    keep_to: int
    """Physical offset; bytes before it are kept."""

    starts_over: bool
    """True when an empty log begins at `keep_to`, without any old byte."""

    file_bytes: int
    """Length of the files of the log after the cut, as on the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationRecord:
    """Saved role, epochs and peers of a member. A new member has the defaults.

    Attributes:
        store_id: Id of the store that the log belongs to; empty before its first epoch.
        epochs: Epochs of the log.
        highest_epoch: Highest epoch that any process has reported.
        is_master: True after a promotion, False after a demotion; None = the configured role.
        is_unclean: True when the member crashed since its newest epoch began.
        is_replicated: True when the member ever had a slave or was one.
        confirmed: Last confirm offset that the master reported to this slave.
        master_role: Role of the last master of this slave: `async_master` or `sync_master`.
        in_sync_replicas: Members that the last master required in sync; 0 = unknown.
        cut: Planned cut of the log; None without one.
        members: Last known members of the broker name.
    """

    store_id: str = ""
    epochs: Epochs = ()
    highest_epoch: int = 0
    is_master: bool | None = None
    is_unclean: bool = False
    is_replicated: bool = False
    confirmed: PhysicalOffset = _NOWHERE
    master_role: str = ""
    in_sync_replicas: int = 0
    cut: LogCut | None = None
    members: tuple[BrokerMember, ...] = ()

    @property
    def highest_known(self) -> int:
        """Highest epoch of the log and of all reports."""
        return max(self.highest_epoch, newest(self.epochs))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `replication.json`."""
        return {
            "version": FORMAT_VERSION,
            "storeId": self.store_id,
            "epochs": [[epoch.number, epoch.start] for epoch in self.epochs],
            "highestEpoch": self.highest_epoch,
            "isMaster": self.is_master,
            "isUnclean": self.is_unclean,
            "isReplicated": self.is_replicated,
            "confirmed": self.confirmed,
            "masterRole": self.master_role,
            "inSyncReplicas": self.in_sync_replicas,
            "cut": None if self.cut is None else self.cut._asdict(),
            "members": [
                {
                    "brokerId": member.broker_id,
                    "epoch": member.epoch,
                    "endpoints": [[each.host, each.port] for each in member.endpoints],
                }
                for member in self.members
            ],
        }


def replication_record_from_dict(content: Mapping[str, Any]) -> ReplicationRecord:
    """Return the record in the content of `replication.json`.

    Raises:
        ValueError: The version is unknown, or a value is invalid.
        LookupError: A member is missing.
        TypeError: A member has another type.
    """
    version = content.get("version")
    if version != FORMAT_VERSION:
        raise ValueError(f"version {version!r}: this program reads version {FORMAT_VERSION}")
    is_master, cut = content["isMaster"], content["cut"]
    if not (is_master is None or isinstance(is_master, bool)):
        raise ValueError(f"isMaster is {is_master!r}, not true, false or null")
    return ReplicationRecord(
        store_id=_text(content, "storeId"),
        epochs=_epochs(content["epochs"]),
        highest_epoch=_number(content, "highestEpoch"),
        is_master=is_master,
        is_unclean=_flag(content, "isUnclean"),
        is_replicated=_flag(content, "isReplicated"),
        confirmed=PhysicalOffset(_number(content, "confirmed")),
        master_role=_text(content, "masterRole"),
        in_sync_replicas=_number(content, "inSyncReplicas"),
        cut=None if cut is None else _cut(as_object(cut, "cut")),
        members=tuple(_member(as_object(each, "member")) for each in content["members"]),
    )


def _epochs(pairs: Any) -> Epochs:
    epochs = tuple(
        Epoch(as_int(number, "epoch"), PhysicalOffset(as_int(start, "start of an epoch")))
        for number, start in pairs
    )
    for before, after in zip((Epoch(0, _NOWHERE), *epochs), epochs, strict=False):
        if after.number <= before.number or after.start < before.start:
            raise ValueError(f"epochs do not ascend: {tuple(after)} follows {tuple(before)}")
    return epochs


def _cut(cut: Mapping[str, Any]) -> LogCut:
    return LogCut(_number(cut, "keep_to"), _flag(cut, "starts_over"), _number(cut, "file_bytes"))


def _member(member: Mapping[str, Any]) -> BrokerMember:
    endpoints = tuple(
        Address(str(host), as_int(port, "port")) for host, port in member["endpoints"]
    )
    return BrokerMember(_number(member, "brokerId"), endpoints, _number(member, "epoch"))


def _number(content: Mapping[str, Any], name: str) -> int:
    value = as_int(content[name], name)
    if value < 0:
        raise ValueError(f"{name} is {value}, below 0")
    return value


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a text")
    return value


def _flag(content: Mapping[str, Any], name: str) -> bool:
    value = content[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not true or false")
    return value
