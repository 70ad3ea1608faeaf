"""The role in which a term begins: the policy of a start, with the answers of others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from ternmq_broker.config import FORMER_MASTER_ID, BrokerConfig, BrokerRole
from ternmq_broker.replication.role.epoch_poll import EpochPollResult, named
from ternmq_broker.replication.role.start_policy import (
    OwnState,
    StartDecision,
    StartRole,
    decide_start,
)
from ternmq_broker.state.epochs import newest, number_of_promotion
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_model.route import MASTER_ID
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0


def is_master(config: BrokerConfig, record: ReplicationRecord) -> bool:
    """Return whether a member is the master according to its own record."""
    return config.broker_id == MASTER_ID if record.is_master is None else record.is_master


def registered_id(config: BrokerConfig, *, is_slave: bool) -> int:
    """Return the id under which a member is known in its role."""
    if not is_slave:
        return MASTER_ID
    return FORMER_MASTER_ID if config.broker_id == MASTER_ID else config.broker_id


def registered_epoch(record: ReplicationRecord, *, is_slave: bool) -> int:
    """Return the epoch with which a member is known in its role.

    A slave that has never followed has a log of a store of its own: it has no epoch of the broker
    name, and deposes no master.
    """
    return 0 if is_slave and record.is_master is None else newest(record.epochs)


def own_of(config: BrokerConfig, record: ReplicationRecord, store: MessageStore) -> OwnState:
    """Return the knowledge of a member about itself when its store is open."""
    is_sync = role_as_master(config, record) is BrokerRole.SYNC_MASTER
    was_clean = store.report.was_clean and not record.is_unclean
    has_others = bool(config.nameservers or record.members)
    return OwnState(
        broker_id=config.broker_id,
        is_master=is_master(config, record),
        # Without NameServers and members, no other member can have replaced this one.
        is_replicated=has_others and (record.is_replicated or is_sync),
        is_empty=store.min_physical == store.max_physical,
        was_clean=was_clean,
        may_lack_confirmed=is_sync and config.flush_mode is FlushMode.ASYNC and not was_clean,
        epochs=record.epochs,
        log_end=store.max_physical,
        highest=record.highest_epoch,
    )


def role_as_master(config: BrokerConfig, record: ReplicationRecord) -> BrokerRole:
    """Return the role of a member as a master; a configured slave has the role of its master."""
    if config.role is not BrokerRole.SLAVE:
        return config.role
    is_sync = record.master_role == BrokerRole.SYNC_MASTER.value
    return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER


def replicas_needed(config: BrokerConfig, record: ReplicationRecord) -> int:
    """Return the number of members that must have a message when this one is the master."""
    if config.role is not BrokerRole.SLAVE:
        return config.replicas_needed
    if role_as_master(config, record) is BrokerRole.ASYNC_MASTER:
        return 1
    return record.in_sync_replicas or 2


async def decide(
    own: OwnState,
    ask: Callable[[], Awaitable[EpochPollResult]],
    *,
    name: str,
    is_forced: bool = False,
    is_promoted: bool = False,
) -> StartDecision:
    """Return the role in which a term begins; `start` is never WAIT.

    No poll is made when its answers cannot matter. Otherwise polls are made each second until one
    decides; a log without an epoch that no slave ever followed needs one poll, since a new broker
    needs no confirmation. Cancelling is safe.

    Args:
        own: Knowledge of the member about itself.
        ask: Polls NameServers and members.
        name: Broker name, for the log.
        is_forced: True when the member starts as the master without a confirmation, even a slave.
        is_promoted: True when a promotion, which polled all members, has just begun the epoch.
    """
    if is_promoted and own.is_master and own.was_clean and own.highest <= newest(own.epochs):
        return StartDecision(StartRole.MASTER, "it was promoted")
    if not (own.is_master or is_forced):
        return decide_start(own, ())
    if own.epochs and not (own.is_replicated or is_forced):
        return decide_start(own, ())
    reason = ""
    while True:
        asked = await ask()
        decision = _decided(own, asked, is_forced=is_forced)
        if decision.start is not StartRole.WAIT:
            return decision
        if decision.reason != reason:
            reason = decision.reason
            logger.warning(
                "master waits and serves nothing until a NameServer or another member confirms it,"
                " if no newer master can exist, start it with --force-master"
                " broker=%s reason=%r asked=%s unreachable=%s",
                name,
                reason,
                named(asked.answered),
                named(asked.unreachable),
            )
        await asyncio.sleep(_PAUSE_S)


def _decided(own: OwnState, asked: EpochPollResult, *, is_forced: bool) -> StartDecision:
    decision = decide_start(
        replace(own, is_master=True) if is_forced else own, asked.answers, is_forced=is_forced
    )
    if decision.start is not StartRole.MASTER or own.is_master:
        return decision
    # A slave's newest epoch belongs to another master.
    highest = max(own.highest, newest(own.epochs), asked.highest)
    return decision._replace(begins=number_of_promotion(highest, own.broker_id))
