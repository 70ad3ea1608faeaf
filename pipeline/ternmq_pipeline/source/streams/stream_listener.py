"""Listener to streams: it reports their lag and commits the exact progress of a group.

A Python source has no metrics of its own in Spark's progress. Its progress has the ends of the
queues, and the listener computes the lag from them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ternmq_client.config import default_nameservers, nameserver_texts
from ternmq_model.errors import TernError
from ternmq_pipeline.cluster.blocking_reader import open_cluster_reader
from ternmq_pipeline.offsets import Offsets
from ternmq_pipeline.options.source_options import ReadOptions
from ternmq_pipeline.source.streams.stream_lag import StreamLag, offsets_behind, source_offsets

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Report of one batch of a stream on one of its sources."""

    query_id: str
    """Spark's id of the query. A restart from the checkpoint keeps it."""

    query_name: str
    """Name of the query; "" = none."""

    batch: int
    """Spark's number of the batch, from 0."""

    offsets: Offsets
    """End of the batch: offset of the next message of each queue."""

    behind: StreamLag | None
    """Lag at the end of the batch; None for a batch that is repeated after a restart."""


class OffsetCommitter(Protocol):
    """Committer of a group's progress, such as `BlockingClusterReader`."""

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit `offsets` for `group`."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class StreamListener(StreamingQueryListener):
    """Reports the end of each batch and commits it: `spark.streams.addListener(…)`.

    The listener commits a batch as soon as Spark reports it as done, the last batch of a run
    included; the option `commitGroup` commits one batch late. Spark calls listeners asynchronously:
    keep the session open for a moment after the end of the query. A failed commit is logged, and
    the next batch commits the later offsets.

    Args:
        observe: Function that receives each report, in Spark's thread for listeners.
        commit_group: Consumer group whose offsets are committed; "" = none.
        query_name: Name of the observed query (`writeStream.queryName(…)`); "" = all queries.
            Queries that read the same topics must not share a group.
        nameserver: Addresses of the NameServers, separated by `;`. "" = those of
            `TERNMQ_NAMESERVER`.
        committer: Committer of the offsets. None = a client of `nameserver`.
    """

    def __init__(
        self,
        *,
        observe: Callable[[StreamReport], None] | None = None,
        commit_group: str = "",
        query_name: str = "",
        nameserver: str = "",
        committer: OffsetCommitter | None = None,
    ) -> None:
        self._observe = observe
        self._group = commit_group
        self._query_name = query_name
        self._nameserver = nameserver
        self._committer = committer

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Ignore the start of a query."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Ignore the end of a query: the report of its last batch came before."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report and commit the offsets of each `ternmq` source of the batch."""
        progress = event.progress
        if self._query_name and progress.name != self._query_name:
            return
        for source in progress.sources:
            offsets = source_offsets(source.endOffset)
            if offsets is None:
                continue
            if self._observe is not None:
                behind = offsets_behind(source.endOffset, source.latestOffset)
                self._observe(
                    StreamReport(
                        str(progress.id), progress.name or "", progress.batchId, offsets, behind
                    )
                )
            self._commit(offsets)

    def close(self) -> None:
        """Close the connections, after `spark.streams.removeListener(…)`."""
        if self._committer is not None:
            self._committer.close()

    def _commit(self, offsets: Offsets) -> None:
        if not self._group:
            return
        try:
            if self._committer is None:
                servers = nameserver_texts(self._nameserver) or default_nameservers()
                self._committer = open_cluster_reader(ReadOptions(nameservers=servers, topics=None))
            self._committer.commit(self._group, offsets)
        except TernError as error:
            logger.warning("stream progress not committed group=%s err=%s", self._group, error)
