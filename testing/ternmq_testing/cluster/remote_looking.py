"""Content of a cluster that runs elsewhere, as its brokers tell an admin client."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ternmq_client.admin.admin_calls import gather
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import NEVER_CONSUMED, GroupDescription, QueueStatus
from ternmq_model.arguments import check_seconds
from ternmq_model.errors import GroupNotFound, TernError, TopicNotFound
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.cluster.looking import report_lines

_PULLED_MAX: Final = 1_000
_LOOK_S: Final = 0.05


@dataclass(slots=True)
class MembersProgress:
    """Work of the members of a group, done and to do.

    Attributes:
        finished: Offsets below which they have answered for all messages.
        in_hand: Number of messages that they have and have not answered.
        is_whole: All members have told theirs.
    """

    finished: dict[MessageQueue, int]
    in_hand: int = 0
    is_whole: bool = True

    def find_topics(self, group: str, late: dict[str, set[str]]) -> None:
        """Remove the topics of which the group has queues from those that groups have not found."""
        topics = late.pop(group, set[str]())
        if self.is_whole:
            late[group] = topics - {queue.topic for queue in self.finished}

    def behind(self, group: str, lags: Mapping[MessageQueue, int]) -> list[str]:
        """Return a text about a group that has not caught up; nothing for another one."""
        if not lags and not self.in_hand:
            return []
        listed = ", ".join(f"{queue}: {count}" for queue, count in lags.items())
        return [f"{group} ({listed or f'{self.in_hand} messages in hand'})"]


async def members_progress(admin: AdminClient, group: GroupDescription) -> MembersProgress:
    """Return what the members of a group tell of their progress. Cancelling is safe."""
    progress = MembersProgress({})
    for member in group.members:
        try:
            state = await admin.consumer_state(group.group, member.client_id)
        except TernError:  # it has just left
            progress.is_whole = False
            continue
        for each in state.queues:
            queue = MessageQueue(each.topic, each.broker_name, each.queue_id)
            # Members that broadcast have the same queues.
            least = progress.finished.get(queue, each.commit_offset)
            progress.finished[queue] = min(least, each.commit_offset)
            progress.in_hand += each.messages
    return progress


@dataclass(slots=True)
class RemoteLook:
    """Looks into a cluster through an open admin client. Cancelling is safe.

    Args:
        admin: Open client of the cluster.
        finished: Offsets below which consumers have finished, committed or not, by group. Every
            `settled` renews them.
        consumed: Function that returns the topics of each group of the known clients. Brokers know
            no member of a group that came before its topic.
    """

    admin: AdminClient
    finished: dict[str, dict[MessageQueue, int]] = field(
        default_factory=dict[str, dict[MessageQueue, int]]
    )
    consumed: Callable[[], dict[str, set[str]]] = dict[str, set[str]]

    async def messages(self, topic: str) -> list[StoredMessage]:
        """Return all messages of a topic at all brokers that answer, oldest first."""
        await self._until_dispatched()
        try:
            queues = (await self.admin.describe_topic(topic)).queues
        except TopicNotFound:
            return []
        found = await gather(queues, self._messages_in)
        every = (message for part in found for message in part)
        return sorted(every, key=lambda message: message.stored_at_ms)

    async def dead_letters(self, group: str) -> list[StoredMessage]:
        """Return the dead letters of a group, oldest first."""
        return await self.messages(DEAD_LETTER_PREFIX + group)

    async def lags(self, group: str) -> dict[MessageQueue, int]:
        """Return the number of messages that a group has not consumed, by queue, if there are any.

        A group that no broker knows has none.
        """
        await self._until_dispatched()
        return await self._lags(group, self.finished.get(group, {}))

    async def unanswered(
        self, taken: Mapping[tuple[str, MessageQueue], int]
    ) -> list[tuple[str, MessageQueue, int]]:
        """Return group, queue and number of the messages that were taken and are not committed.

        `taken` has the offsets behind the last messages that were taken, by group and queue.
        """
        found: list[tuple[str, MessageQueue, int]] = []
        for group in sorted({group for group, _ in taken}):
            with suppress(GroupNotFound):
                for each in (await self.admin.describe_group(group)).progress:
                    behind = taken.get((group, each.queue), 0)
                    if NEVER_CONSUMED < each.committed_offset < behind:
                        found.append((group, each.queue, behind - each.committed_offset))
        return found

    async def settled(self, timeout_s: float) -> None:
        """Wait until every group with members has caught up, and nothing new was stored meanwhile.

        Raises:
            AssertionError: The cluster did not settle within `timeout_s`; names the groups behind.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + check_seconds("timeout_s", timeout_s, least=0)
        while True:
            ends = await self._until_dispatched()
            behind = await self._groups_behind()
            if not behind and await self._until_dispatched() == ends:
                return
            if loop.time() >= until_s:
                why = behind or "messages arrive"
                raise AssertionError(f"not settled within {timeout_s:g} s: {why}")
            await asyncio.sleep(_LOOK_S)

    async def report(self) -> str:
        """Return topics, lags and dead letters as a text."""
        topics: dict[str, int] = {}
        for topic in await self.admin.topics():
            if not is_system_topic(topic) and (count := await self._count(topic)):
                topics[topic] = count
        groups = {
            group: (sum((await self.lags(group)).values()), await self.dead_letters(group))
            for group in await self.admin.groups()
        }
        return "\n".join(report_lines(topics, groups))

    async def _count(self, topic: str) -> int:
        """Return the number of messages of a topic; 0 for one that no broker has."""
        try:
            queues = (await self.admin.describe_topic(topic)).queues
        except TopicNotFound:
            return 0
        return sum(each.max_offset - each.min_offset for each in queues)

    async def _messages_in(self, status: QueueStatus) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        offset = status.min_offset
        while offset < status.max_offset:
            part = await self.admin.messages_at(status.queue, offset, maximum=_PULLED_MAX)
            if not part:
                break
            found += part
            offset = part[-1].queue_offset + 1
        return found

    async def _until_dispatched(self) -> list[tuple[str, int]]:
        """Wait until all that is stored now is in its queues; return the ends of the logs."""
        ends: list[tuple[str, int]] = []
        for data in await self.admin.brokers():
            end: int | None = None
            with suppress(TernError):  # a broker that does not run
                while True:
                    status = await self.admin.broker_status(data)
                    end = status.log_confirm_offset if end is None else end
                    if status.dispatched_offset >= end:
                        break
                    await asyncio.sleep(_LOOK_S)
                ends.append((data.broker_name, end))
        return ends

    async def _groups_behind(self) -> str:
        """Return the groups that have not caught up, as a text."""
        behind: list[str] = []
        late = self.consumed()
        for group in await self.admin.groups():
            try:
                described = await self.admin.describe_group(group)
            except GroupNotFound:
                continue
            if not described.members:
                continue
            progress = await members_progress(self.admin, described)
            progress.find_topics(group, late)
            self.finished[group] = progress.finished
            behind += progress.behind(group, await self._lags(group, progress.finished))
        behind += [
            f"{group} (has no queue of {topic} yet)"
            for group, topics in late.items()
            for topic in sorted(topics)
            if await self._count(topic)
        ]
        return "; ".join(behind)

    async def _lags(
        self, group: str, finished: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        ends: dict[MessageQueue, tuple[int, int]] = {}
        with suppress(GroupNotFound):
            for each in (await self.admin.describe_group(group)).progress:
                ends[each.queue] = max(each.min_offset, each.committed_offset), each.max_offset
        retry = RETRY_PREFIX + group
        if ends and all(queue.topic != retry for queue in ends):
            with suppress(TopicNotFound):
                for status in (await self.admin.describe_topic(retry)).queues:
                    ends[status.queue] = status.min_offset, status.max_offset
        lags = {
            queue: end - max(done, finished.get(queue, 0)) for queue, (done, end) in ends.items()
        }
        return {queue: lag for queue, lag in lags.items() if lag > 0}
