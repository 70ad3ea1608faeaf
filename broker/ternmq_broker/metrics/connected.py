"""Metrics of the broker's place in its cluster: clients, names, role and replicas."""

from collections import Counter
from collections.abc import Iterable

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.metrics.families import (
    CONSUMERS,
    EPOCH,
    GROUPS,
    IS_MASTER,
    PERMISSION,
    PRODUCERS,
    REPLICA_BEHIND,
    TOPICS,
)
from ternmq_broker.metrics.traffic import flag
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.state.clients import ClientSession
from ternmq_model.names import is_system_group
from ternmq_model.route import READ_WRITE, Permission
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

_PROTOCOL = "grpc"


async def collect_connections(
    scrape: Scrape, node: LabelValues, sessions: Iterable[ClientSession]
) -> None:
    """Add the counts of connected producers and consumers.

    A client whose stream broke counts until its place is given to others.
    """
    producers: Counter[LabelValues] = Counter()
    consumers: Counter[LabelValues] = Counter()
    for session in sessions:
        client = (session.language, session.version, _PROTOCOL)
        if session.producer_groups:
            producers[client] += 1
        for group in session.memberships:
            consumers[group, *client, flag(is_system_group(group))] += 1
        await scrape.rest()
    for values, count in producers.items():
        scrape.add(PRODUCERS, (*node, *values), count)
    for values, count in consumers.items():
        scrape.add(CONSUMERS, (*node, *values), count)
        await scrape.rest()


def collect_role(
    scrape: Scrape,
    node: LabelValues,
    env: BrokerEnvironment,
    member: Membership,
    *,
    behind: Iterable[tuple[int, int]],
) -> None:
    """Add role, epoch and permission of the broker, and the counts of topics and groups.

    Args:
        scrape: Scrape.
        node: Labels of the broker.
        env: Settings and tables of the term.
        member: Membership of the broker in its name.
        behind: Id of each slave, and the bytes of the log that it lacks.
    """
    scrape.add(TOPICS, node, len(env.tables.topics))
    scrape.add(GROUPS, node, sum(1 for _ in env.tables.groups))
    permission = READ_WRITE
    if env.is_slave or env.live.broker.draining:
        permission = Permission.READ
    scrape.add(PERMISSION, node, int(permission))
    scrape.add(IS_MASTER, node, int(not member.is_slave))
    scrape.add(EPOCH, node, member.identity.epoch)
    for broker_id, lacking in behind:
        scrape.add(REPLICA_BEHIND, (*node, str(broker_id)), lacking)
