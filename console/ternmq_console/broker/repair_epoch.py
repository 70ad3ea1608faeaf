"""`ternmq broker repair-epoch`: removal of epochs that no master began."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from ternmq_client.admin.admin_calls import gather
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.replication import MemberView, NameServerEpoch
from ternmq_console.broker.epoch_directories import EpochDirectory, open_directory
from ternmq_console.broker.replicas import last_epoch
from ternmq_console.cli.admin_query import ask
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import cluster_options, stopped_data_option, yes_option
from ternmq_console.cli.output import confirm, print_line, print_rows
from ternmq_model.address import Address, parse_address
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import (
    RefusedError,
    TernError,
    TransportError,
    Unreachable,
    UsageError,
    refusal,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID, BrokerData, BrokerMember

_COLUMNS: Final = ("who", "before", "after", "problem")


@dataclass(frozen=True, slots=True)
class EpochViews:
    """Epochs that NameServers and members report."""

    cluster: str
    nameservers: Sequence[NameServerEpoch]
    named: Sequence[MemberView]
    """Members that NameServers or options name."""

    remembered: Sequence[MemberView] = ()
    """Members that only the directory lists."""

    @property
    def members(self) -> Sequence[MemberView]:
        """Members of both kinds."""
        return (*self.named, *self.remembered)


@click.command()
@click.argument("broker")
@stopped_data_option("member of BROKER, or of a stopped NameServer")
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="HOST:PORT",
    help="Running member that no NameServer lists; may be repeated.",
)
@click.option(
    "--epoch",
    type=click.IntRange(min=1),
    help="Highest epoch that really began, if no member reports it.",
)
@click.option("--cluster", help="Cluster of BROKER.  [default: as registered, else DefaultCluster]")
@yes_option
@cluster_options
def repair_epoch(
    broker: str,
    *,
    data: Path,
    members: Sequence[str],
    epoch: int | None,
    cluster: str | None,
    yes: bool,
    nameserver: str,
    output: str,
) -> None:
    """Replace epochs of BROKER that no member began, in the data directory DIR.

    DIR belongs to a member or a NameServer, and is not in use. The command first queries running
    NameServers and members, and shows their epochs. In a member's directory the numbers become
    those that its masters would have begun; a NameServer's becomes the highest of the members'
    logs.

    If a known member does not answer, or the members are unknown, set --epoch to the highest epoch
    that really began.

    The command changes no epoch without a confirmation.
    """
    with errors_as_exits(), ExitStack() as stack:
        directory = open_directory(data, broker, cluster, stack)
        found = ask(nameserver, lambda admin: query_epochs(admin, broker, members, directory))
        check_directory(found, directory, broker, is_given=epoch is not None)
        real, unknown = real_epoch(found, directory, epoch)
        print_rows(rows_of(found, directory, real), _COLUMNS, output)
        if unknown:
            raise UsageError(unknown)
        if directory.after(real) is not None:
            if not yes:
                confirm("Change what `after` tells?")
            directory.repair(real)
        elif output != "json":
            print_line("nothing to repair")
        away = [str(each.address) for each in found.nameservers if each.problem]
        if len(away) > directory.is_nameserver:  # the one whose directory this is
            raise Unreachable(f"NameServer {', '.join(away)} did not answer")


async def query_epochs(
    admin: AdminClient,
    broker: str,
    members: Sequence[str],
    directory: EpochDirectory,
) -> EpochViews:
    """Return the epochs of every NameServer and member.

    Raises:
        TernError: A member of the options does not answer, or has another broker name.
    """
    cluster, named = directory.cluster, list[MemberView]()
    try:
        named = await admin.member_views(cluster or "", broker)
    except RefusedError as error:
        if error.code != ResponseCode.BROKER_NOT_EXIST:
            raise
    except TransportError:
        pass  # each NameServer's own row has the reason
    of = cluster or (named[0].data.cluster if named else "DefaultCluster")
    for text in members:
        view = await admin.member_at(parse_address(text, setting="--member"))
        if (view.data.cluster, view.data.broker_name) != (of, broker):
            raise UsageError(f"{text} is {_broker_of(view)}, not {broker} of cluster {of}")
        named.append(view)

    async def view_of(member: BrokerMember) -> MemberView:
        try:
            view = await admin.member_at(*member.endpoints)
        except TernError as error:
            away = str(error) or type(error).__name__
            return MemberView(BrokerData(of, broker, (member,)), member, problem=away)
        if (view.data.cluster, view.data.broker_name) == (of, broker):
            return replace(view, member=member)
        if directory.store_id and view.status and view.status.store_id == directory.store_id:
            raise UsageError(f"{directory.root} is of {_broker_of(view)}")
        return MemberView(view.data, member, problem=f"{_broker_of(view)} answers there")

    there = _places(named)
    unknown = [each for each in directory.members if there.isdisjoint(each.endpoints)]
    remembered = await gather(unknown, view_of)
    return EpochViews(of, await admin.nameserver_epochs(of, broker), named, remembered)


def check_directory(
    found: EpochViews, directory: EpochDirectory, broker: str, *, is_given: bool
) -> None:
    """Refuse a directory that does not belong to the broker. Pure.

    Raises:
        RefusedError: BROKER_NOT_EXIST: no NameServer or member knows the broker.
        UsageError: The directory has another store than the members that answer.
    """
    is_default = found.cluster == "DefaultCluster"
    if directory.is_nameserver and directory.cluster is None and not is_default:
        text = f"{directory.root} does not contain the cluster of {broker}"
        raise UsageError(f"{text}: add --cluster {found.cluster}")
    stores = {each.status.store_id for each in found.members if each.status} - {""}
    if directory.store_id and stores and directory.store_id not in stores:
        raise UsageError(
            f"{directory.root} holds store {directory.store_id}, the members of broker {broker}"
            f" that answer have {', '.join(sorted(stores))}"
        )
    if (
        found.named
        or any(each.status for each in found.remembered)
        or any(each.highest for each in found.nameservers)
        or directory.is_known
    ):
        return
    is_member = not directory.is_nameserver
    if is_member and (is_given or all(each.problem for each in found.nameservers)):
        return  # a data directory of a member does not contain its broker name
    text = f"no NameServer and no member knows broker {broker} of cluster {found.cluster}"
    raise refusal(ResponseCode.BROKER_NOT_EXIST, text)


def real_epoch(found: EpochViews, directory: EpochDirectory, epoch: int | None) -> tuple[int, str]:
    """Return the highest epoch that began, and the reason for doubts about it; "" = none. Pure.

    Args:
        found: Epochs of NameServers and members.
        directory: Directory, which counts as a member that answers.
        epoch: Epoch of the option; None = not given.

    Raises:
        UsageError: The members that answer contradict the option.
    """
    ours = [
        each.status
        for each in found.members
        if each.status is not None and directory.store_id in ("", each.status.store_id)
    ]
    logs = [last_epoch(each) for each in ours if not doubt_of(last_epoch(each))]
    if epoch is not None:
        doubts = [doubt_of(epoch, each.highest_epoch) for each in ours]
        if doubts and all(doubts):
            raise UsageError(f"every member that answers rejects that: {doubts[0]}")
        return epoch, ""
    real = max([*logs, directory.newest])
    say = f"give the highest epoch that really began by --epoch; the logs here have {real}"
    silent = missing_members(found, directory)
    if silent:
        names = "; ".join(_name_of(each) for each in silent)
        return real, f"{names}: no answer, and it may have a higher epoch. Start it, or {say}"
    known = {frozenset(each.member.endpoints) for each in found.members}
    if len(known) < 2 and not directory.is_alone:
        return real, f"the members are unknown: name them with --member, or {say}"
    return real, ""


def missing_members(found: EpochViews, directory: EpochDirectory) -> Sequence[BrokerMember]:
    """Return the known members that do not answer. Pure.

    The owner of the directory does not count: the only member with the directory's role that no
    NameServer names.
    """
    there = _places([each for each in found.members if each.status is not None])
    named, remembered = (
        [each.member for each in views if there.isdisjoint(each.member.endpoints)]
        for views in (found.named, found.remembered)
    )
    own = [each for each in remembered if (each.broker_id == MASTER_ID) is directory.is_master]
    return [*named, *(each for each in remembered if own != [each])]


def rows_of(found: EpochViews, directory: EpochDirectory, real: int) -> list[dict[str, object]]:
    """Return a row for each NameServer and member, and one for the repaired directory. Pure."""
    rows = [
        _row(f"NameServer {each.address}", each.highest or None, None, each.problem)
        for each in found.nameservers
    ]
    for view in found.members:
        status = view.status
        has = status and f"log {last_epoch(status)}, highest {status.highest_epoch}"
        rows.append(_row(_name_of(view.member), has, None, view.problem))
    store = f" (store {directory.store_id})" if directory.store_id else ""
    rows.append(_row(f"{directory.root}{store}", directory.before, directory.after(real), ""))
    return rows


def _row(who: str, before: object, after: object, problem: str) -> dict[str, object]:
    return dict(zip(_COLUMNS, (who, before, after, problem or None), strict=True))


def _places(views: Sequence[MemberView]) -> set[Address]:
    return {address for each in views for address in each.member.endpoints}


def _name_of(member: BrokerMember) -> str:
    return f"member {member.broker_id} at {', '.join(map(str, member.endpoints))}"


def _broker_of(view: MemberView) -> str:
    return f"broker {view.data.broker_name} of cluster {view.data.cluster}"
