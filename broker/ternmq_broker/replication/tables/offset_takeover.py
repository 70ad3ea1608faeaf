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

_TIMEOUT_S: Final = 2.0
"""Time limit for the answers of all slaves, s. Slaves without an answer are left out."""


async def take_over_offsets(
    env: Environment,
    discovery: MemberDiscovery,
    tables: Tables,
    *,
    end_of: Callable[[str, int], QueueOffset],
) -> int:
    """Merge the offsets of every slave that answers into the table, before calls are served.

    An offset beyond the end of its queue is set to that end, with a new version: the message that
    will be stored there is not the one that the slave's group has consumed.

    Args:
        env: Network and blocking calls.
        discovery: Search for the slaves.
        tables: Tables of this broker.
        end_of: Returns the end of a topic's queue here.

    Returns:
        Number of offsets that were newer at slaves.
    """
    taken = 0

    async def take_table(update: TableUpdate) -> None:
        nonlocal taken
        for row, _ in parse_rows(update.content):
            taken += _merge(tables, row, end_of, now_ms=env.clock.wall_ms())

    async def ask(member: BrokerMember) -> None:
        expect = Identity(discovery.cluster, discovery.name, member.broker_id, 0)
        try:
            async with connected(env.network, member.endpoints, expect=expect) as connection:
                reader = TableReader(connection, env.blocking)
                await reader.read_changed({}, take_table, tables=[OFFSETS])
        except (TernError, ValueError) as error:
            logger.info("offsets not copied broker_id=%s err=%s", member.broker_id, error)

    try:
        async with asyncio.timeout(_TIMEOUT_S):
            members = [each for each in await discovery.members() if each.broker_id != MASTER_ID]
            await asyncio.gather(*(ask(member) for member in members))
    except TimeoutError:
        logger.warning("offsets not received from every slave after_s=%s", _TIMEOUT_S)
    if taken:
        logger.info("offsets copied from slaves count=%s", taken)
    return taken


def _merge(
    tables: Tables, row: VersionedOffset, end_of: Callable[[str, int], QueueOffset], *, now_ms: int
) -> bool:
    """Merge an offset if its topic is known; return whether the offset is newer."""
    if row.offset is None or tables.topics.get(row.topic) is None:
        return False
    if not tables.offsets.versions.is_believed(row.group, row.topic, row.queue_id, row.version):
        logger.warning(
            "offset rejected, its version is made up group=%s topic=%s queue=%s version=%s",
            row.group,
            row.topic,
            row.queue_id,
            row.version,
        )
        return False
    end = end_of(row.topic, row.queue_id)
    try:
        tables.groups.use(row.group, now_ms=now_ms)
    except RefusedError:
        return False  # the limit of groups is reached
    except IllegalName:
        pass  # a long group of RocketMQ: its offsets are stored although no client can use it
    is_newer = tables.offsets.merge(row)
    if is_newer and row.offset > end:
        tables.offsets.clamp(row.group, row.topic, row.queue_id, end)
    return is_newer
