"""What a producer of staged messages makes of answers that no broker of its version gives."""

import pytest

from ternmq_broker.transactions.service import TransactionService
from ternmq_model.errors import RefusedError
from ternmq_model.message import Message
from ternmq_producer.staging import StagingProducer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, simulated_cluster


@pytest.mark.parametrize("state", [77, 300, -1])
def test_unknown_state_is_an_error_that_names_its_broker(
    state: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_arguments: object, **_settings: object) -> int:
        return state

    monkeypatch.setattr(TransactionService, "_state_of_open", unknown)

    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("T")
            async with StagingProducer(
                "G", nameserver=NAMESERVER, env=cluster.environment("sink")
            ) as producer:
                staged = await producer.stage([Message("T", b"1")], staged_for="q/1")
                with pytest.raises(RefusedError, match=f"a: transaction state {state} is unknown"):
                    await producer.states(staged)

    run_in_virtual_time(main())
