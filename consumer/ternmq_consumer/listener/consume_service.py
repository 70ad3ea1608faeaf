"""Service that ends hand-outs after listener calls: the seam of its two kinds.

A concurrent consumer sends failed messages back, and a broadcasting one counts them
(`concurrent_service`). An orderly consumer retries them first (`orderly_service`).

Source: RocketMQ `ConsumeMessageService`.
"""

from typing import Protocol

from ternmq_consumer.listener.consume_request import ConsumeRequest


class ConsumeService(Protocol):
    """Service that ends hand-outs by their outcome. Used by the consumer's workers."""

    def begin(self, request: ConsumeRequest) -> None:
        """Record that a worker has taken `request`."""
        ...

    def take(self, request: ConsumeRequest) -> None:
        """End `request` after its listener call."""
        ...
