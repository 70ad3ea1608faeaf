"""Topics and the broker itself, for operators.

Source: RocketMQ `AdminBrokerProcessor`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.assembly import GroupAssembly
from ternmq_broker.pull.assembly import PullAssembly
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.scheduled.assembly import ScheduledAssembly
from ternmq_broker.state.topics import DELETED_AT_ONCE_MAX
from ternmq_broker.storage.retention import StoreRetention
from ternmq_broker.transactions.assembly import Transactions
from ternmq_model.errors import IllegalName, RefusedError, refusal
from ternmq_model.names import check_topic, is_system_topic
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import QUEUES_MAX, TOPICS_AT_ONCE_MAX, Permission, TopicConfig
from ternmq_model.version import __version__
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.converters import status_of, topic_config_from_pb, topic_config_to_pb
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import (
    CLEAN_STORE,
    DELETE_TOPIC,
    DESCRIBE_BROKER,
    DESCRIBE_TOPIC,
    PUT_TOPIC,
    PUT_TOPICS,
)

logger = logging.getLogger(__name__)

_PERMISSIONS: Final = int(Permission.READ | Permission.WRITE | Permission.INHERIT)

_PORT_LIMITS: Final = {
    "handshakes": PortLimit.HANDSHAKE,
    "first_messages": PortLimit.FIRST_MESSAGE,
    "addresses": PortLimit.ADDRESS,
    "anonymous_bytes": PortLimit.ANONYMOUS_BYTES,
    "streams": PortLimit.STREAMS,
}
"""Fields of the counts of a port's limits."""


class AdminService:
    """The part of the Admin contract that concerns topics and the broker.

    Args:
        env: Settings, store and tables of the term.
        member: Membership of the broker in its name.
        groups: Locks of groups.
        pulls: Pulls that wait, and listeners for deleted topics.
        scheduled: Delayed and timed messages.
        transactions: Open transactions.
        retention: Removes files; no topic is deleted during a pass.
        warnings: Returns what is not safe about the broker.
    """

    def __init__(
        self,
        env: BrokerEnvironment,
        member: Membership,
        groups: GroupAssembly,
        pulls: PullAssembly,
        scheduled: ScheduledAssembly,
        transactions: Transactions,
        retention: StoreRetention,
        *,
        warnings: Callable[[], Sequence[str]],
    ) -> None:
        self._env = env
        self._member = member
        self._clock = env.clock
        self._store = env.store
        self._tables = env.tables
        self._registrar = env.registrar
        self._locks = groups.locks
        self._pulls = pulls
        self._scheduled = scheduled
        self._transactions = transactions
        self._retention = retention
        self._warnings = warnings
        self._started_at_ms = env.clock.wall_ms()
        self._doomed: dict[object, str] = {}
        """Topics of waiting deletions by call, oldest call first. Two calls may name one topic."""
        self._removing = asyncio.Lock()

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of the service."""
        return (
            unary(PUT_TOPIC, self.put_topic),
            unary(PUT_TOPICS, self.put_topics),
            unary(DELETE_TOPIC, self.delete_topic),
            unary(DESCRIBE_TOPIC, self.describe_topic),
            unary(DESCRIBE_BROKER, self.describe_broker),
            unary(CLEAN_STORE, self.clean_store),
        )

    async def put_topic(self, request: admin.PutTopicRequest, call: Call) -> admin.PutTopicReply:
        """Create or change a topic; the reply comes when the topic is saved and registered."""
        is_new = self._put(request.topic)
        await self._save_topics([request.topic.topic])
        return admin.PutTopicReply(created=is_new)

    async def put_topics(self, request: admin.PutTopicsRequest, call: Call) -> admin.PutTopicsReply:
        """Create, change or refuse topics one by one.

        The reply comes when all topics that were not refused are saved and registered.
        """
        if len(request.topics) > TOPICS_AT_ONCE_MAX:
            remark = f"{len(request.topics)} topics; must be at most {TOPICS_AT_ONCE_MAX} at once"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        reply = admin.PutTopicsReply()
        put: list[str] = []
        for requested in request.topics:
            try:
                reply.results.add(created=self._put(requested))
                put.append(requested.topic)
            except (IllegalName, RefusedError) as error:
                reply.results.add(status=status_of(error))
        if put:
            await self._save_topics(put)
        return reply

    def _put(self, requested: common.TopicConfig) -> bool:
        """Create or change a topic, in memory; return whether it is new.

        Raises:
            IllegalName: The name is illegal.
            RefusedError: The topic belongs to the broker, a number is out of bounds, or the table
                is full.
        """
        config = _checked(requested)
        self._tables.topics.check_new(config.topic)
        is_new = self._tables.topics.put(config, now_ms=self._clock.wall_ms())
        logger.info(
            "topic put topic=%s read_queues=%s write_queues=%s permissions=%s new=%s",
            config.topic,
            config.read_queues,
            config.write_queues,
            config.permissions.text,
            is_new,
        )
        return is_new

    async def delete_topic(
        self, request: admin.DeleteTopicRequest, call: Call
    ) -> admin.DeleteTopicReply:
        """Delete a topic, its consume queues and the offsets of its groups, durably.

        Readers are notified at once, because a topic that is created again is another topic.
        """
        topic = self._existing(request.topic).topic
        if is_system_topic(topic):
            remark = f"topic {topic!r} belongs to the broker"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        await self.remove_topic(topic)
        return admin.DeleteTopicReply()

    async def remove_topic(self, topic: str) -> None:
        """Delete an existing topic, durably.

        Raises:
            StoreError: A table could not be saved; it is saved as soon as the disk allows it.
        """
        call = object()
        self._doomed[call] = topic
        try:
            async with self._removing:
                if call in self._doomed:
                    await self._remove_doomed()
                    return
        finally:
            self._doomed.pop(call, None)
        await self._save_deletions([topic])  # another call has deleted the topic

    async def _remove_doomed(self) -> None:
        """Delete the oldest waiting topics; later ones wait until the tables are saved."""
        tables = self._tables
        async with self._retention.passes:
            oldest = islice(self._doomed.values(), DELETED_AT_ONCE_MAX)
            topics = list(dict.fromkeys(oldest))
            self._store.delete_topic(*topics)
            for call in [call for call, topic in self._doomed.items() if topic in topics]:
                del self._doomed[call]
            for topic in topics:
                tables.topics.remove(topic, now_ms=self._clock.wall_ms())
                tables.offsets.remove_topic(topic)
                self._locks.remove_topic(topic)
                self._pulls.deletion_listeners.deleted(topic)
                tables.filters.remove_topic(topic)
                self._env.statistics.forget_topic(topic)
                self._transactions.forget_topic(topic)
                logger.info("topic deleted topic=%s", topic)
        await self._save_deletions(topics)

    async def _save_topics(self, topics: Sequence[str]) -> None:
        """Save and register all topics, and wake the pulls that wait for these.

        Raises:
            StoreError: The table could not be saved; it is saved as soon as the disk allows it.
            RefusedError: A NameServer refuses the topics, which are saved; names the NameServer.
        """
        for topic in topics:
            self._pulls.holds.wake_topic(topic)
        version = self._tables.topics.version
        self._registrar.changed()
        if (saved := self._tables.topics_file.saved()) is not None:
            await saved
        if not await self._registrar.wait_registered(version):
            logger.warning(
                "registration of topics continues after the reply topics=%s count=%s",
                topics[:3],
                len(topics),
            )
        self._registrar.check_accepted(version, " ".join(("topic", *topics))[:200])

    async def _save_deletions(self, topics: Sequence[str]) -> None:
        """Save all topics and offsets, so that no crash brings back deleted topics or offsets.

        Raises:
            StoreError: A table could not be saved; it is saved as soon as the disk allows it.
            RefusedError: A NameServer refuses the topics; names it. The tables are saved.
        """
        saved = (self._tables.offsets_file.saved(), self._tables.versions_file.saved())
        try:
            await self._save_topics(topics)
        finally:
            for each in filter(None, saved):
                await each

    async def describe_topic(
        self, request: admin.DescribeTopicRequest, call: Call
    ) -> admin.DescribeTopicReply:
        """Return the settings and queues of a topic."""
        config, store = self._existing(request.topic), self._store
        created = self._tables.topics.created(config.topic)
        reply = admin.DescribeTopicReply(
            topic=topic_config_to_pb(config),
            store_id=self._member.state.store_id,
            created_log_offset=created.log_offset,
            created_at_ms=created.at_ms,
        )
        for queue_id in range(max(config.read_queues, config.write_queues)):
            least, end = store.queue_range(config.topic, queue_id)
            reply.queues.add(
                queue_id=queue_id,
                min_offset=least,
                max_offset=end,
                last_stored_at_ms=store.reads.last_stored_at_ms(config.topic, queue_id),
            )
        return reply

    async def describe_broker(
        self, request: admin.DescribeBrokerRequest, call: Call
    ) -> admin.DescribeBrokerReply:
        """Return the identity of the broker and the state of its store."""
        identity, store, counts = self._member.identity, self._store, self._env.port_counts
        return admin.DescribeBrokerReply(
            cluster=identity.cluster,
            broker_name=identity.name,
            broker_id=identity.broker_id,
            epoch=identity.epoch,
            version=__version__,
            started_at_ms=self._started_at_ms,
            log_min_offset=store.min_physical,
            log_max_offset=store.max_physical,
            log_flushed_offset=store.flushed_offset,
            log_confirm_offset=store.confirm_offset,
            dispatched_offset=store.dispatched_offset,
            flush_mode=self._env.live.broker.flush_mode.value,
            disk_used_percent=100 * store.cleaner.used_share,
            disk_level=store.cleaner.level.name.lower(),
            waiting=self._scheduled.describe(),
            transactions=self._transactions.describe(),
            warnings=self._warnings(),
            port=admin.PortRefusals(
                **{field: counts.get(limit, 0) for field, limit in _PORT_LIMITS.items()}
            ),
        )

    async def clean_store(
        self, request: admin.CleanStoreRequest, call: Call
    ) -> admin.CleanStoreReply:
        """Delete expired files; the reply comes when they are gone."""
        count = await self._retention.clean_now()
        start = self._store.min_physical
        return admin.CleanStoreReply(files_deleted=count, log_min_offset=start)

    def _existing(self, topic: str) -> TopicConfig:
        config = self._tables.topics.get(check_topic(topic))
        if config is None:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist")
        return config


def _checked(requested: common.TopicConfig) -> TopicConfig:
    """Return the requested settings of a topic after a check.

    Raises:
        IllegalName: The name is illegal.
        RefusedError: The topic belongs to the broker, or a number is out of bounds.
    """
    topic = check_topic(requested.topic)
    if is_system_topic(topic):
        raise refusal(ResponseCode.NO_PERMISSION, f"topic {topic!r} belongs to the broker")
    for kind, count in (("read", requested.read_queues), ("write", requested.write_queues)):
        if not 1 <= count <= QUEUES_MAX:
            remark = f"topic {topic!r}: {count} {kind} queues; must be 1 to {QUEUES_MAX}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
    if requested.permissions & ~_PERMISSIONS or not requested.permissions:
        remark = (
            f"topic {topic!r}: permissions {requested.permissions}; must be 1 to {_PERMISSIONS}"
        )
        raise refusal(ResponseCode.INVALID_PARAMETER, remark)
    if requested.sys_flag & ~3:
        remark = f"topic {topic!r}: sys_flag {requested.sys_flag}; must be 0 to 3"
        raise refusal(ResponseCode.INVALID_PARAMETER, remark)
    return topic_config_from_pb(requested)
