"""The takeover of offsets that were committed at slaves while their master was away."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ternmq_broker.replication.role.member_discovery import MemberDiscovery
from ternmq_broker.replication.tables.table_contents import OFFSETS, parse_rows
from ternmq_broker.replication.tables.table_reader import TableReader, TableUpdate
from ternmq_broker.state.offsets import VersionedOffset
from ternmq_broker.state.tables import Tables
from ternmq_model.errors import IllegalName, RefusedError, TernError
from ternmq_model.offsets import QueueOffset
from ternmq_model.route import MASTER_ID, BrokerMember
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Identity, connected

logger = logging.getLogger(__name__)

TAKE_OVER_TIMEOUT_S: Final = 2.0


async def take_over_offsets(
    env: Environment,
    discovery: MemberDiscovery,
    tables: Tables,
    *,
    cluster: str,
    name: str,
    end_of: Callable[[str, int], QueueOffset],
    timeout_s: float = TAKE_OVER_TIMEOUT_S,
) -> int:
    """Merge the offsets of every slave that answers into the table, before calls are served.

    An offset beyond the end of its queue is set to that end, under a version of its own: the
    message that will be stored there is not the one that the slave's group has seen.

    Args:
        env: Network and blocking calls.
        discovery: Search for the slaves.
        tables: Tables of this broker.
        cluster: Cluster of the broker.
        name: Broker name.
        end_of: Returns the end of a topic's queue here.
        timeout_s: Limit on the whole takeover; slaves without an answer are left out.

    Returns:
        Number of offsets that were newer at slaves.
    """
    taken = 0

    async def take_table(update: TableUpdate) -> None:
        nonlocal taken
        for row, _ in parse_rows(update.content):
            taken += _merge(tables, row, end_of, now_ms=env.clock.wall_ms())

    async def ask(member: BrokerMember) -> None:
        expect = Identity(cluster, name, member.broker_id, 0)
        try:
            async with connected(env.network, member.endpoints, expect=expect) as connection:
                reader = TableReader(connection, env.blocking)
                await reader.read_changed({}, take_table, tables=[OFFSETS])
        except (TernError, ValueError) as error:
            logger.info("offsets not taken from=%s reason=%s", member.broker_id, error)

    try:
        async with asyncio.timeout(timeout_s):
            members = [each for each in await discovery.members() if each.broker_id != MASTER_ID]
            await asyncio.gather(*(ask(member) for member in members))
    except TimeoutError:
        logger.warning("offsets not taken from every slave within %s s", timeout_s)
    if taken:
        logger.info("offsets taken from slaves count=%s", taken)
    return taken


def _merge(
    tables: Tables, told: VersionedOffset, end_of: Callable[[str, int], QueueOffset], *, now_ms: int
) -> bool:
    """Merge one offset if its topic is known; return whether it is newer."""
    if told.offset is None or tables.topics.get(told.topic) is None:
        return False
    if not tables.offsets.versions.is_believed(told.group, told.topic, told.queue_id, told.version):
        logger.warning(
            "offset not taken, its version is made up group=%s topic=%s queue=%s version=%s",
            told.group,
            told.topic,
            told.queue_id,
            told.version,
        )
        return False
    end = end_of(told.topic, told.queue_id)
    try:
        tables.groups.use(told.group, now_ms=now_ms)
    except RefusedError:
        return False  # there are as many groups as may be
    except IllegalName:
        pass  # a long group of RocketMQ, whose offsets are kept though no client can use it
    is_newer = tables.offsets.merge(told)
    if is_newer and told.offset > end:
        tables.offsets.clamp(told.group, told.topic, told.queue_id, end)
    return is_newer
