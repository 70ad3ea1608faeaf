"""Routes from NameServers that may not know all brokers yet. Pure.

A NameServer that has just started knows each broker after about a second, and a restarting broker
is missing at all NameServers. In both cases clients keep the queues of a topic.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from ternmq_model.address import ANY_HOST
from ternmq_model.route import BrokerData, TopicRoute


def completed(
    found: TopicRoute | None, before: TopicRoute, is_suspected: Callable[[str, int], bool]
) -> TopicRoute:
    """Return a route completed by the brokers of an earlier one.

    Queues of a broker that the new route does not name can still be read. They can be written while
    the master is not known to be unreachable, or if no other queue can be written: a message then
    waits for that master instead of failing.

    Args:
        found: Present route; None = the topic is unknown.
        before: Earlier route.
        is_suspected: Function that returns whether a member, by broker name and id, could not be
            reached since.

    Returns:
        Completed route; `found` itself if it is complete.
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
