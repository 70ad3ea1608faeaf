"""Committing many staged transactions at once, without making objects of their messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.reader import StoreReader
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.commit_codec import PlainCommit, plain_commit
from ternmq_broker.transactions.end_lookup import TransactionIdentity
from ternmq_broker.transactions.table import OpenTransaction
from ternmq_broker.transactions.transitions import Transitions
from ternmq_model.errors import TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import TopicConfig

_BYTES_MAX: Final = 1 << 20


class ClaimedCommit(NamedTuple):
    """A commit that nobody else works on."""

    identity: TransactionIdentity
    entry: OpenTransaction


@dataclass(frozen=True, slots=True)
class StagedCommits:
    """Commits plain ones. Owns nothing; all of it is the broker's loop's."""

    reader: StoreReader
    transitions: Transitions
    topics: RealTopics
    ack_policy: AckPolicy

    async def commit_first(self, claimed: Sequence[ClaimedCommit]) -> int:
        """Commit as many of the first as are plain, in their order; return how many.

        What comes then, and what went wrong, is for the longer way, which can tell why.
        """
        done = 0
        known: dict[tuple[str, int], TopicConfig] = {}
        while done < len(claimed):
            plain = await self._plain(claimed[done : done + RECORDS_AT_ONCE], known)
            if not plain:
                break
            entries = [one.entry for one in claimed[done : done + len(plain)]]
            try:
                await self.transitions.commit_plain(entries, plain)
            except TernError:
                break
            done += len(plain)
            await yield_to_requests()
        return done

    async def _plain(
        self, claimed: Sequence[ClaimedCommit], known: dict[tuple[str, int], TopicConfig]
    ) -> list[PlainCommit]:
        found: list[PlainCommit] = []
        size = 0
        for identity, entry in claimed:
            offset = entry.physical_offset
            if not self.ack_policy.confirmations.reached(PhysicalOffset(offset + 1)):
                break
            try:
                data = await self.reader.record(offset, is_checked=False)
                one = None if data is None else plain_commit(data, identity)
                if one is None:
                    break
                config = known.get((one.topic, one.queue_id))
                if config is None:
                    config = self.topics.find(one.topic, one.queue_id, offset)
                if config is None:
                    break
            except TernError:
                break
            known[one.topic, one.queue_id] = config
            queues = max(config.read_queues, config.write_queues, 1)
            if one.queue_id >= queues:
                one = one._replace(queue_id=one.queue_id % queues)
            found.append(one)
            size += len(one.front)
            if size >= _BYTES_MAX:
                break
        return found
