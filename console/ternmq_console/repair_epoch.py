"""`ternmq broker repair-epoch`: the way back from an epoch that nobody began."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from ternmq_broker.replication.epochs import newest
from ternmq_broker.replication.lives.kept import Kept
from ternmq_broker.replication.lives.repairing import (
    is_made_up,
    load_kept,
    repaired,
    save_kept,
)
from ternmq_client.admin import AdminClient
from ternmq_client.administration.replication import MemberView, NameServerEpoch
from ternmq_console.admin import ask
from ternmq_console.exits import errors_as_exits
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import confirm, print_line, print_rows
from ternmq_console.replicas import last_epoch
from ternmq_model.address import Address, parse_address
from ternmq_model.epochs import EPOCH_MAX, doubt_of
from ternmq_model.errors import RefusedError, TransportError, Unreachable, UsageError
from ternmq_model.response_code import ResponseCode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.disk.layout import lock_path
from ternmq_store.inspection.log_inspection import find_log_files

_COLUMNS: Final = ("who", "log", "highest", "becomes", "problem")


@dataclass(frozen=True, slots=True)
class Found:
    """What NameServers and members have."""

    cluster: str
    nameservers: Sequence[NameServerEpoch]
    members: Sequence[MemberView]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done."""

    real: int
    """The highest epoch that the logs have."""

    nameservers: Sequence[NameServerEpoch]
    """They are to keep `real`."""

    kept: Kept | None
    """What the member of the data directory is to keep; None = nothing is to be changed there."""

    waits_for: str = ""
    """Members that do not answer, so that NameServers stay as they are; "" for none."""


@click.command()
@click.argument("broker")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Of a member of BROKER that is stopped: repair it, too.",
)
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="HOST:PORT",
    help="A member that runs and is not registered; may be repeated.",
)
@click.option(
    "--epoch",
    type=click.IntRange(1, EPOCH_MAX),
    help="The highest epoch that is real, where members that know it are gone for good.",
)
@click.option("--cluster", help="Of BROKER.  [default: as registered, else DefaultCluster]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@nameserver_option
@output_option
def repair_epoch(
    broker: str,
    *,
    data: Path | None,
    members: Sequence[str],
    epoch: int | None,
    cluster: str | None,
    yes: bool,
    nameserver: str,
    output: str,
) -> None:
    """Set epochs of BROKER that nobody began back to the highest that its members' logs have.

    Shows what each NameServer and member has, and what becomes of it. Every NameServer is repaired,
    and with --data a member that is stopped: its numbers become those that its masters would have
    begun. Repair each member whose start is refused, and name those that run and cannot register
    with --member.

    A number that is no more than 10^9 above the logs' is kept: a promotion goes beyond it. So is
    one that a registered member has. NameServers stay as they are while a member that is known does
    not answer, unless --epoch says what it would.

    Nothing is changed before you said yes.
    """
    files = RealFileSystem()
    with errors_as_exits(), ExitStack() as stack:
        if data is not None:
            find_log_files(files, data)
            stack.callback(files.lock(lock_path(data)).release)
        kept = None if data is None else load_kept(files, data)
        found = ask(nameserver, lambda admin: look(admin, broker, cluster, members))
        plan = plan_repair(found, kept, epoch or 0)
        print_rows(rows_of(found, plan, data, kept), _COLUMNS, output)
        if plan.nameservers or plan.kept is not None:
            if not yes:
                confirm("Change what `becomes` tells?")
            if data is not None and plan.kept is not None:
                save_kept(files, data, plan.kept)
            ask(nameserver, lambda admin: carry_out(admin, broker, found.cluster, plan))
        elif output != "json":
            print_line("nothing to repair")
        silent = [str(each.address) for each in found.nameservers if each.problem]
        if silent and data is None:
            raise Unreachable(f"NameServer {', '.join(silent)} did not answer: repeat this for it")


async def look(
    admin: AdminClient, broker: str, cluster: str | None, members: Sequence[str]
) -> Found:
    """Ask every NameServer and member.

    Raises:
        TernError: A member that was named does not answer, or is of another broker name.
    """
    views: list[MemberView] = []
    try:
        views = await admin.member_views(cluster or "", broker)
    except RefusedError as error:
        if error.code != ResponseCode.BROKER_NOT_EXIST:
            raise
    except TransportError:
        pass  # each NameServer's own row tells why
    of = cluster or (views[0].data.cluster if views else "DefaultCluster")
    for text in members:
        address = parse_address(text, setting="--member")
        views.append(await admin.member_at(of, broker, address))
    return Found(of, await admin.nameserver_epochs(of, broker), views)


def plan_repair(found: Found, kept: Kept | None, told: int) -> Plan:
    """Return what is to be done. Pure.

    Args:
        found: What NameServers and members have.
        kept: What the member of the data directory keeps; None without one.
        told: The highest epoch that is real, as somebody says; 0 = nobody does.

    Raises:
        UsageError: That cannot be known, or a member that runs has to be repaired first.
    """
    real = told
    for view in found.members:
        if view.status is None:
            continue
        before = 0
        for each in view.status.epochs:
            if is_made_up(each.number, max(before, told)):
                raise UsageError(
                    f"{_name_of(view)} runs with epoch {each.number} in its log, which nobody can"
                    " have begun: stop it, and repair its data directory with --data"
                )
            before = each.number
        real = max(real, before)
    wanted = None
    if kept is not None:
        wanted = repaired(kept, real=real)
        real = max(real, newest(wanted.epochs))
        wanted = None if wanted == kept else wanted
    if not real and any(each.highest for each in found.nameservers):
        raise UsageError(
            "no member tells which epoch is real: name one that runs with --member, the directory"
            " of one that is stopped with --data, or the number itself with --epoch"
        )
    wrong = [
        each
        for each in found.nameservers
        if not each.problem and (doubt_of(each.highest, real) or doubt_of(real, each.highest))
    ]
    silent = () if told or not wrong else silent_members(found.members, kept)
    if not silent:
        return Plan(real, wrong, wanted)
    text = "; ".join(", ".join(map(str, sorted(each, key=str))) for each in silent)
    if kept is None:
        raise UsageError(
            f"a member at {text} does not answer, and may have a higher epoch than {real}: start it"
            " first, or say with --epoch which is the highest"
        )
    return Plan(real, (), wanted, text)


def silent_members(
    members: Sequence[MemberView], kept: Kept | None
) -> Sequence[frozenset[Address]]:
    """Return where members are that are known and do not answer. Pure.

    Args:
        members: Those that were asked.
        kept: What the member of the data directory keeps. It is silent itself, and knows where all
            are, itself included.
    """
    told = [view.member for view in members if view.status is not None]
    there = {address for member in told for address in member.endpoints}
    silent: list[frozenset[Address]] = []
    known = [view.member for view in members] + list(() if kept is None else kept.members)
    for member in known:
        places = frozenset(member.endpoints)
        if places & there or any(places & each for each in silent):
            continue
        silent.append(places)
    return silent[1:] if kept is not None and len(silent) == 1 else silent


async def carry_out(admin: AdminClient, broker: str, cluster: str, plan: Plan) -> None:
    """Repair NameServers.

    Raises:
        RefusedError: One keeps another number by now, or one that may be real.
        TransportError: One does not answer. Those before it are repaired.
    """
    for each in plan.nameservers:
        await admin.repair_epoch(each, cluster, broker, epoch=plan.real)


def rows_of(
    found: Found, plan: Plan, data: Path | None, kept: Kept | None
) -> list[dict[str, object]]:
    """Return what each has, and what becomes of it. Pure."""
    rows: list[dict[str, object]] = []
    for each in found.nameservers:
        becomes = plan.real if each in plan.nameservers else None
        highest = each.highest or None
        problem = each.problem
        if plan.waits_for and doubt_of(each.highest, plan.real):
            problem = f"waits for a member at {plan.waits_for}: repeat this, or say --epoch"
        rows.append(_row(f"NameServer {each.address}", None, highest, becomes, problem))
    for view in found.members:
        status = view.status
        log = None if status is None else last_epoch(status)
        highest = None if status is None else status.highest_epoch
        problem = view.problem
        if highest and doubt_of(highest, plan.real):
            problem = "it keeps a made-up epoch: stop it, and repair its directory with --data"
        rows.append(_row(_name_of(view), log, highest, None, problem))
    if kept is not None:
        becomes_text = None if plan.kept is None else _text_of(plan.kept)
        rows.append(_row(str(data), newest(kept.epochs), kept.highest_epoch, becomes_text, ""))
    return rows


def _row(
    who: str, log: int | None, highest: int | None, becomes: object, problem: str
) -> dict[str, object]:
    values = (who, log, highest, becomes, problem or None)
    return dict(zip(_COLUMNS, values, strict=True))


def _text_of(kept: Kept) -> str:
    return f"log {newest(kept.epochs)}, highest {kept.highest_known}"


def _name_of(view: MemberView) -> str:
    return f"member {view.member.broker_id} at {', '.join(map(str, view.member.endpoints))}"
