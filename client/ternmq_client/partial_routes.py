"""Routes from a NameServer that may not know everything yet. Pure.

One that has just started learns of each broker within about a second. What it does not tell is no
reason to give a broker up, unless that was found to be out of reach, or to be wrong.
"""

from collections.abc import Callable
from dataclasses import replace

from ternmq_model.address import ANY_HOST
from ternmq_model.route import BrokerData, TopicRoute


def completed(
    found: TopicRoute | None, before: TopicRoute, is_doubted: Callable[[str, int], bool]
) -> TopicRoute | None:
    """Return a route with what it lacks and was told before.

    Args:
        found: As it is told now; None = the topic is unknown.
        before: As it was told before.
        is_doubted: Tells of a broker name and an id whether that member could not be reached since.

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
    brokers: dict[str, BrokerData] = dict(told)
    lost: set[str] = set()
    for data in before.brokers:
        now = told.get(data.broker_name)
        ids = {member.broker_id for member in (() if now is None else now.members)}
        kept = [
            member
            for member in data.members
            if member.broker_id not in ids
            and not is_doubted(data.broker_name, member.broker_id)
            and places.isdisjoint(member.endpoints)
        ]
        if not kept:
            continue
        members = [*(() if now is None else now.members), *kept]
        members.sort(key=lambda member: member.broker_id)
        brokers[data.broker_name] = replace(now or data, members=tuple(members))
        if now is None:
            lost.add(data.broker_name)
    if brokers == told:
        return found
    queues = [*(() if found is None else found.queues)]
    queues += [data for data in before.queues if data.broker_name in lost]
    return replace(
        found or before,
        queues=tuple(sorted(queues, key=lambda data: data.broker_name)),
        brokers=tuple(data for _, data in sorted(brokers.items())),
    )
