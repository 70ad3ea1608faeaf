"""Measuring stretches at their brokers."""

from typing import Any

from ternmq_consumer.scanning import StretchToMeasure, measure
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.contracts import MEASURE_QUEUES
from tests.support.scripted_scans import ScriptedClient
from tests.support.virtual_time import run_in_virtual_time


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


def test_answers_come_in_the_order_of_the_questions_from_as_many_requests_as_it_takes() -> None:
    async def main() -> None:
        client = ScriptedClient(answers={MEASURE_QUEUES: answer})
        stretches = [
            StretchToMeasure(MessageQueue("T", "ab"[number % 2], number), number, number + 5, 7)
            for number in range(3_000)
        ]
        measured = await measure(client, stretches)
        assert measured == [(number + 5, number + 7) for number in range(3_000)]
        assert sorted(len(requests[0].stretches) for requests in client.requests) == [
            *(476, 476, 1_024, 1_024)
        ]
        assert await measure(client, []) == []

    run_in_virtual_time(main())
