"""Blocking reader of a cluster for Spark's driver."""

from typing import Self

from ternmq_client.blocking_client import BlockingClient, blocking
from ternmq_client.config import ClientConfig
from ternmq_pipeline.cluster.group_commits import GroupCommits
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.offsets import Offsets
from ternmq_pipeline.options.source_options import ReadOptions


class BlockingClusterReader(BlockingClient[ClusterReader]):
    """`ClusterReader` without `await`: `with open_cluster_reader(options) as reader`.

    The event loop runs in a thread of its own. Any thread may call the methods.
    """

    def __init__(self, reader: ClusterReader) -> None:
        super().__init__(reader)
        self._commits: dict[str, GroupCommits] = {}

    def __enter__(self) -> Self:
        # `open_cluster_reader` has opened the reader already.
        return self if self._keeper is not None else super().__enter__()

    snapshot = blocking(ClusterReader.snapshot)
    offsets_at = blocking(ClusterReader.offsets_at)
    measure = blocking(ClusterReader.measure)

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit `offsets` for `group`; see `GroupCommits.commit`."""
        commits = self._commits.get(group)
        if commits is None:
            commits = self._commits[group] = GroupCommits(self._client, group)
        self._run(commits.commit(offsets))


def open_cluster_reader(options: ReadOptions) -> BlockingClusterReader:
    """Return an open reader of the cluster that options name.

    The caller closes the reader by `with` or by `close`. Opening sends no request.
    """
    config = ClientConfig(
        nameservers=options.nameservers, request_timeout_s=options.request_timeout_s
    )
    return BlockingClusterReader(
        ClusterReader(config, retry_timeout_s=options.retry_timeout_s)
    ).__enter__()
