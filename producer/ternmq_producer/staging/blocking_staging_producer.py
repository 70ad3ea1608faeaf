"""Blocking staging producer, for synchronous callers."""

from collections.abc import Sequence

from ternmq_client.blocking_client import BlockingClient, blocking
from ternmq_client.config import ClientConfig
from ternmq_producer.config import ProducerConfig
from ternmq_producer.staging.staging_producer import StagingProducer
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

    stage = blocking(StagingProducer.stage)
    stage_columns = blocking(StagingProducer.stage_columns)
    states = blocking(StagingProducer.states)
    end = blocking(StagingProducer.end)
