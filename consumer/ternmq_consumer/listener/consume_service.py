"""What becomes of messages when a listener was called with them: the seam, and what ways share.

A concurrent consumer sends back what failed (`concurrent`), an orderly one tries it again first
(`orderly`), one that broadcasts counts it (`concurrent`, with nobody to send it back to).
"""

from typing import Protocol

from ternmq_consumer.listener.consume_request import Work


class Results(Protocol):
    """Ends hand-outs by what came of them. Used by the consumer's workers."""

    def begin(self, work: Work) -> None:
        """Learn that a worker has taken `work`."""
        ...

    def take(self, work: Work) -> None:
        """End `work`, which the worker is done with."""
        ...

    async def look(self) -> bool:
        """Look for calls that take too long. The step of a job."""
        ...
