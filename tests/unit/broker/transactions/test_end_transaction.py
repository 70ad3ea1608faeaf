import asyncio
from typing import Any, cast

import pytest

from ternmq_broker.storage.admission import Admission
from ternmq_broker.transactions.end_transaction import EndTransactionProcessor
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_testing.time.virtual_time import run_in_virtual_time


def processor(ready: asyncio.Event, *, is_closing: bool = False) -> EndTransactionProcessor:
    unused = cast("Any", None)
    admission = Admission(bytes_max=0, bytes_per_stream_max=0)
    admission.is_closing = is_closing
    return EndTransactionProcessor(
        transitions=unused,
        halves=unused,
        topics=unused,
        end_lookup=unused,
        ready=ready,
        admission=admission,
        rules=unused,
    )


@pytest.mark.parametrize("after_s", [0.0, 2.9])
def test_requests_wait_until_the_table_is_ready(after_s: float) -> None:
    async def main() -> None:
        ready = asyncio.Event()
        asyncio.get_running_loop().call_later(after_s, ready.set)
        await processor(ready).check_ready()
        assert ready.is_set()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("is_closing", "waits_s", "reason"),
    [(False, 3.0, "still reads the ends"), (True, 0, "closing")],
)
def test_requests_are_refused_while_the_broker_starts_or_closes(
    is_closing: bool, waits_s: float, reason: str
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(RefusedError, match=reason) as refused:
            await processor(asyncio.Event(), is_closing=is_closing).check_ready()
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert loop.time() - began_s == pytest.approx(waits_s)

    run_in_virtual_time(main())
