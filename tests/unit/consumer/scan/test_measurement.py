"""Measurement of ranges at their brokers."""

from typing import Any

import pytest

from ternmq_consumer.scan import RangeToMeasure, measure
from ternmq_model.errors import ClosedError, ConnectionLost, TernError, Unreachable
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import MEASURE_QUEUES
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.scripted_scans import ScriptedClient


def answer(request: Any) -> admin.MeasureQueuesReply:
    assert len(request.stretches) <= 1_024
    return admin.MeasureQueuesReply(
        stretches=[
            admin.MeasuredStretch(
                end_offset=each.end_offset, bytes=each.begin_offset + each.bytes_max
            )
            for each in request.stretches
        ]
    )


def test_answers_keep_the_order_of_questions_over_several_requests() -> None:
    async def main() -> None:
        client = ScriptedClient(answers={MEASURE_QUEUES: answer})
        stretches = [
            RangeToMeasure(MessageQueue("T", "ab"[number % 2], number), number, number + 5, 7)
            for number in range(3_000)
        ]
        measured = await measure(client, stretches)
        assert measured == [(number + 5, number + 7) for number in range(3_000)]
        assert sorted(len(requests[0].stretches) for requests in client.requests) == [
            *(476, 476, 1_024, 1_024)
        ]
        assert await measure(client, []) == []

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("failure", "told", "forgotten"),
    [
        (Unreachable("is away"), Unreachable, [0]),
        (ClosedError("another user of the connection gave it up"), ConnectionLost, []),
    ],
)
def test_failed_connection_is_dialled_again_next_time(
    failure: TernError, told: type[TernError], forgotten: list[int]
) -> None:
    def fail(_request: Any) -> admin.MeasureQueuesReply:
        raise failure

    async def main() -> None:
        client = ScriptedClient(answers={MEASURE_QUEUES: fail})
        with pytest.raises(told):
            await measure(client, [RangeToMeasure(MessageQueue("T", "a", 0), 0, 5)])
        assert client.forgotten == forgotten

    run_in_virtual_time(main())
