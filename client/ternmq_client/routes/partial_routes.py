"""Routes from NameServers that may not know everything yet. Pure.

A NameServer that has just started learns of each broker within about a second, and a broker that
restarts is missing from all of them meanwhile. Neither is a reason to give a topic's queues up.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from ternmq_model.address import ANY_HOST
from ternmq_model.route import BrokerData, TopicRoute


def completed(
    found: TopicRoute | None, before: TopicRoute, is_suspected: Callable[[str, int], bool]
) -> TopicRoute:
    """Return a route with what it lacks and was told before.

    The queues of a broker name that is not told any more can be read on. They can be written while
    its master is not known to be out of reach, or where nothing else can be written: a message then
    waits for that master instead of failing.

    Args:
        found: As it is told now; None = the topic is unknown.
        before: As it was told before.
        is_suspected: Returns whether the member of a broker name and id could not be reached since.

    Returns:
        `found` itself when it lacks nothing that is to be believed still.
    """
    told = {data.broker_name: data for data in (() if found is None else found.brokers)}
    places = {
        endpoint
        for data in told.values()
        for member in data.members
        for endpoint in member.endpoints
        if endpoint.host != ANY_HOST  # which is another host for every reader
    }
    brokers = dict(told)
    lost: dict[str, BrokerData] = {}
    for data in before.brokers:
        now = told.get(data.broker_name)
        ids = {member.broker_id for member in (() if now is None else now.members)}
        untold = [
            member
            for member in data.members
            if member.broker_id not in ids and places.isdisjoint(member.endpoints)
        ]
        kept = [each for each in untold if not is_suspected(data.broker_name, each.broker_id)]
        if now is None:
            lost[data.broker_name] = replace(data, members=tuple(untold))
            brokers[data.broker_name] = replace(data, members=tuple(kept))
        elif kept:
            members = sorted([*now.members, *kept], key=lambda member: member.broker_id)
            brokers[data.broker_name] = replace(now, members=tuple(members))
    if found is not None and brokers == told:
        return found
    queues = [*(() if found is None else found.queues)]
    queues += [data for data in before.queues if data.broker_name in lost]
    route = replace(
        found or before,
        queues=tuple(sorted(queues, key=lambda data: data.broker_name)),
        brokers=tuple(data for _, data in sorted(brokers.items())),
    )
    if route.write_queues():
        return route
    brokers |= lost
    return replace(route, brokers=tuple(data for _, data in sorted(brokers.items())))


def without(route: TopicRoute, names: Collection[str]) -> TopicRoute:
    """Return `route` without these broker names."""
    return replace(
        route,
        queues=tuple(data for data in route.queues if data.broker_name not in names),
        brokers=tuple(data for data in route.brokers if data.broker_name not in names),
    )
