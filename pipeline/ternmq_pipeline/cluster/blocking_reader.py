"""The cluster for Spark's driver, which calls plain functions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

from ternmq_client.blocking_client import BlockingClient
from ternmq_client.config import ClientConfig
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.cluster.group_commits import GroupCommits
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.offsets import OffsetRange, Offsets
from ternmq_pipeline.options import ReadOptions, TopicChoice
from ternmq_pipeline.planning import ClusterSnapshot, RangeSize


class BlockingClusterReader(BlockingClient[ClusterReader]):
    """`ClusterReader` without `await`: `with open_cluster_reader(options) as reader`.

    An event loop in a thread of its own does the work. Any thread may call it.
    """

    def __init__(self, reader: ClusterReader) -> None:
        super().__init__(reader)
        self._commits: dict[str, GroupCommits] = {}

    def __enter__(self) -> Self:
        # `open_cluster_reader` returns it open, also for those who leave it by `with`.
        return self if self._keeper is not None else super().__enter__()

    def snapshot(
        self,
        choice: TopicChoice,
        *,
        include_system: bool = False,
        expected: Iterable[MessageQueue] = (),
        brokers: Collection[str] | None = None,
    ) -> ClusterSnapshot:
        """Return what the queues that `choice` takes have now; see `ClusterReader.snapshot`."""
        return self._run(
            self._client.snapshot(
                choice, include_system=include_system, expected=expected, brokers=brokers
            )
        )

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, QueueOffset]:
        """Return of each queue the first message stored at its time or later, else its end."""
        return self._run(self._client.offsets_at(times_ms))

    def measure(self, asked: Sequence[tuple[OffsetRange, int]]) -> list[RangeSize]:
        """Return the bytes of ranges, each up to the message that reaches its number of them."""
        return self._run(self._client.measure(asked))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Tell brokers how far `group` is; see `GroupCommits.commit`."""
        commits = self._commits.get(group)
        if commits is None:
            commits = self._commits[group] = GroupCommits(self._client, group)
        self._run(commits.commit(offsets))


def open_cluster_reader(options: ReadOptions) -> BlockingClusterReader:
    """Return the cluster that options name. It is open: to be left by `with`, or by `close`.

    Nobody is asked yet.
    """
    config = ClientConfig(
        nameservers=options.nameservers, request_timeout_s=options.request_timeout_s
    )
    return BlockingClusterReader(
        ClusterReader(config, retry_timeout_s=options.retry_timeout_s)
    ).__enter__()
