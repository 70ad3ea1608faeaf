import asyncio
from dataclasses import replace

from ternmq_client.tracing.trace_dispatcher import (
    BATCH_MAX,
    BODY_BYTES_MAX,
    KEYS_BYTES_MAX,
    QUEUE_MAX,
    TraceDispatcher,
    trace_messages,
)
from ternmq_client.tracing.trace_records import ConsumeBegan, decode
from ternmq_model.errors import Unreachable
from ternmq_runtime.timers import LOOP_TIMERS
from ternmq_testing.time.virtual_time import run_in_virtual_time

BEGAN = ConsumeBegan(
    at_ms=5, region="R", group="G", request_id="Q", message_id="M", retries=0, keys="k1 k2"
)


class Broker:
    """Takes trace messages, slowly or not at all."""

    def __init__(self, *, delay_s: float = 0.0, error: Unreachable | None = None) -> None:
        self.taken: list[tuple[bytes, str]] = []
        self.delay_s = delay_s
        self.error = error

    async def send(self, body: bytes, keys: str) -> None:
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.taken.append((body, keys))

    def counts(self) -> list[int]:
        return [len(list(decode(body.decode()))) for body, _ in self.taken]


def test_ten_calls_leave_at_once_and_fewer_after_five_seconds() -> None:
    async def main() -> None:
        broker = Broker()
        async with TraceDispatcher(broker.send, LOOP_TIMERS) as dispatcher:
            await asyncio.sleep(0.1)
            for _ in range(BATCH_MAX):
                dispatcher.offer([BEGAN])
            await asyncio.sleep(0.1)
            assert broker.counts() == [10]
            dispatcher.offer([BEGAN])
            await asyncio.sleep(4.5)
            assert broker.counts() == [10]
            await asyncio.sleep(1)
            assert broker.counts() == [10, 1]
            assert broker.taken[-1][1] == "M k1 k2"
            assert dispatcher.statistics.sent == 11

    run_in_virtual_time(main())


def test_excess_traces_are_dropped_and_counted() -> None:
    async def main() -> None:
        broker = Broker()
        async with TraceDispatcher(broker.send, LOOP_TIMERS) as dispatcher:
            taken = [dispatcher.offer([BEGAN]) for _ in range(QUEUE_MAX + 3)]
            assert taken.count(False) == 3
            assert dispatcher.statistics.dropped == 3
        assert sum(broker.counts()) == QUEUE_MAX

    run_in_virtual_time(main())


def test_closing_sends_pending_traces_and_gives_up_after_three_seconds() -> None:
    async def main() -> None:
        for delay_s, sent in ((0.1, 1), (60.0, 0)):
            broker = Broker(delay_s=delay_s)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            async with TraceDispatcher(broker.send, LOOP_TIMERS) as dispatcher:
                await asyncio.sleep(0.1)
                dispatcher.offer([BEGAN])
            assert sum(broker.counts()) == sent
            assert loop.time() - began_s < 3.5

    run_in_virtual_time(main())


def test_traces_refused_by_the_broker_are_counted_and_dropped() -> None:
    async def main() -> None:
        broker = Broker(error=Unreachable("nobody there"))
        async with TraceDispatcher(broker.send, LOOP_TIMERS) as dispatcher:
            for _ in range(BATCH_MAX):
                dispatcher.offer([BEGAN])
            await asyncio.sleep(1)
            assert dispatcher.statistics.failed == BATCH_MAX
            broker.error = None
            dispatcher.offer([BEGAN])
            await asyncio.sleep(6)
            assert dispatcher.statistics.sent == 1

    run_in_virtual_time(main())


def test_trace_message_is_never_too_long() -> None:
    long = replace(BEGAN, group="g" * 50_000)
    messages = list(trace_messages([[long, long], [long], [BEGAN]]))
    assert [len(list(decode(body.decode()))) for body, _ in messages] == [2, 2]
    assert all(len(body) <= BODY_BYTES_MAX for body, _ in messages)


def test_trace_keys_are_never_too_long() -> None:
    calls = [[replace(BEGAN, message_id=f"{row:032}", keys="k" * 900)] for row in range(40)]
    calls = [[replace(one, keys=f"{row:02}{one.keys}")] for row, [one] in enumerate(calls)]
    messages = list(trace_messages([*calls, [replace(BEGAN, keys="x" * KEYS_BYTES_MAX)]]))
    assert sum(len(list(decode(body.decode()))) for body, _ in messages) == 41
    assert all(len(keys) <= KEYS_BYTES_MAX for _, keys in messages)
    assert len(messages) == 3
