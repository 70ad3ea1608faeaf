"""The service that ends hand-outs once a listener was called: the seam of its two kinds.

A concurrent consumer sends back what failed, an orderly one tries it again first, one that
broadcasts counts it: `concurrent_service`, with nobody to send it back to.

Source: RocketMQ `ConsumeMessageService`.
"""

from typing import Protocol

from ternmq_consumer.listener.consume_request import ConsumeRequest


class ConsumeService(Protocol):
    """Service that ends hand-outs by their outcomes. Used by the consumer's workers."""

    def begin(self, request: ConsumeRequest) -> None:
        """Record that a worker has taken `request`."""
        ...

    def take(self, request: ConsumeRequest) -> None:
        """End `request` after its listener call."""
        ...
