"""Health of a cluster: the problems in the views of its members and NameServers. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from ternmq_client.admin.nameserver_admin import NameServerView
from ternmq_client.admin.replication import MemberView
from ternmq_model.route import BrokerData

BEHIND_MS_MAX: Final = 3_000
BEHIND_BYTES_MAX: Final = 1 << 20
"""Lag of a healthy slave in bytes; one that exceeds both limits is behind. Under load some bytes
are always in flight."""


def problems_of(members: Sequence[MemberView], nameservers: Sequence[NameServerView]) -> list[str]:
    """Return the problems of a cluster, a sentence each; empty for a healthy one.

    In a healthy cluster every NameServer answers and has the same members; every broker name has a
    master; every member answers, and its disk works and is not full; every slave follows its master
    within the limits of lag; a `sync_master` has as many members in sync as it needs; no master is
    draining.

    Args:
        members: Members sorted by broker name, from `AdminClient.member_views`.
        nameservers: Views from `AdminClient.nameserver_views`.
    """
    found = _nameserver_problems(nameservers)
    if not members:
        found.append("no broker is registered")
    for data, views in groupby(members, key=lambda view: view.data):
        found += _name_problems(data.broker_name, list(views))
    return found


def warnings_of(members: Sequence[MemberView], nameservers: Sequence[NameServerView]) -> list[str]:
    """Return what is not safe about a cluster, a sentence each. It may be healthy all the same."""
    found = [f"NameServer {view.address} {text}" for view in nameservers for text in view.warnings]
    for view in members:
        who = f"{view.data.broker_name} (id {view.member.broker_id})"
        found += [f"{who} {text}" for text in (view.broker.warnings if view.broker else ())]
    return found


def _nameserver_problems(views: Sequence[NameServerView]) -> list[str]:
    silent = (view for view in views if view.problem)
    found = [f"NameServer {view.address} does not answer: {view.problem}" for view in silent]
    answered = [view for view in views if not view.problem]
    known = [_by_member(view.brokers) for view in answered]
    if not answered or all(each == known[0] for each in known):
        return found
    for key in sorted({key for each in known for key in each}):
        if len({each.get(key) for each in known}) > 1:
            parts = (
                f"{view.address}: {_member_text(each.get(key))}"
                for view, each in zip(answered, known, strict=True)
            )
            found.append(f"NameServers differ on {key[0]} (id {key[1]}): {'; '.join(parts)}")
    return found


_AddressesAndEpoch = tuple[tuple[str, ...], int]


def _by_member(brokers: Iterable[BrokerData]) -> Mapping[tuple[str, int], _AddressesAndEpoch]:
    """Return the addresses and the epoch of each member by broker name and id."""
    return {
        (data.broker_name, member.broker_id): (
            tuple(map(str, member.endpoints)),
            member.epoch if member is data.master else 0,
        )
        for data in brokers
        for member in data.members
    }


def _member_text(registered: _AddressesAndEpoch | None) -> str:
    if registered is None:
        return "not registered"
    addresses, epoch = registered
    return f"{','.join(addresses)} epoch {epoch}" if epoch else ",".join(addresses)


def _name_problems(name: str, views: Sequence[MemberView]) -> list[str]:
    found: list[str] = []
    if not any(view.is_master for view in views):
        found.append(f"{name} has no master: no producer can send to it")
    for view in views:
        who = f"{name} (id {view.member.broker_id})"
        if view.problem:
            found.append(f"{who} does not answer: {view.problem}")
            continue
        found += [f"{who} {text}" for text in _member_problems(view)]
    return found


def _member_problems(view: MemberView) -> Iterable[str]:
    """Yield the problems of a member that answered."""
    if view.store is not None and view.store.failure:
        yield f"stores no messages any more: {view.store.failure}"
    if view.broker is not None and view.broker.disk_level == "full":
        yield f"refuses messages: its disk is {view.broker.disk_used_percent:.0f} % full"
    status = view.status
    if status is None:
        return
    if status.is_fenced:
        yield f"acknowledges nothing: there is a master of epoch {status.highest_epoch}"
    if view.is_master:
        if status.is_draining:
            yield "is draining: sends to it wait for a promotion, or `undrain`"
        if status.in_sync_now < status.in_sync_replicas:
            yield (
                f"has too few members in sync: {status.in_sync_now}, "
                f"needs {status.in_sync_replicas}"
            )
        for follower in status.followers:
            if not follower.is_in_sync:
                lag = f"{follower.lag_bytes} bytes and {follower.lag_ms / 1000:.1f} s"
                yield f"does not wait for slave {follower.broker_id}, which is {lag} behind"
        return
    following = status.following
    if not following.is_connected:
        yield f"follows no master: {following.problem or 'its master is not found'}"
    elif following.lag_ms > BEHIND_MS_MAX and following.lag_bytes > BEHIND_BYTES_MAX:
        lag = f"{following.lag_bytes} bytes and {following.lag_ms / 1000:.1f} s"
        yield f"is {lag} behind its master"
