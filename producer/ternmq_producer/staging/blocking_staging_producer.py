"""Blocking staging producer, for synchronous callers."""

from collections.abc import Sequence

from ternmq_client.blocking_client import BlockingClient
from ternmq_client.config import ClientConfig
from ternmq_model.message import Message
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.config import ProducerConfig
from ternmq_producer.staging.staged_messages import StagedMessage, StagedMessages
from ternmq_producer.staging.staging_producer import IMMUNITY_S, StagingProducer
from ternmq_remoting.environment import Environment


class BlockingStagingProducer(BlockingClient[StagingProducer]):
    """A `StagingProducer` whose verbs block: `with BlockingStagingProducer("sink") as producer:`.

    Any number of threads may use it. Arguments, results and errors are those of `StagingProducer`.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        env: Environment | None = None,
    ) -> None:
        super().__init__(
            StagingProducer(group, nameserver=nameserver, config=config, client=client, env=env)
        )

    def stage(
        self,
        messages: Sequence[Message],
        *,
        staged_for: str,
        immunity_s: int = IMMUNITY_S,
        timeout_s: float | None = None,
    ) -> StagedMessages:
        """Store half messages, which nobody sees. See `StagingProducer.stage`."""
        return self._run(
            self._client.stage(
                messages, staged_for=staged_for, immunity_s=immunity_s, timeout_s=timeout_s
            )
        )

    def states(
        self, staged: Sequence[StagedMessage], *, timeout_s: float = 60.0
    ) -> list[TransactionState]:
        """Return what became of staged messages. See `StagingProducer.states`."""
        return self._run(self._client.states(staged, timeout_s=timeout_s))

    def end(
        self,
        staged: Sequence[StagedMessage],
        resolution: Resolution,
        *,
        timeout_s: float = 60.0,
    ) -> None:
        """Commit staged messages, or roll them back. See `StagingProducer.end`."""
        self._run(self._client.end(staged, resolution, timeout_s=timeout_s))
