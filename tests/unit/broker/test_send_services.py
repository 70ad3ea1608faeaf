import asyncio
from typing import Any, cast

import pytest

from ternmq_broker.confirmations import Confirmations
from ternmq_broker.inner.room import Safety
from ternmq_broker.send_services import SendServices
from ternmq_broker.sending import MessageWriter, Sender
from ternmq_model.errors import BrokerBusy, RefusedError
from ternmq_model.response_code import ResponseCode


class FullOnce:
    """A writer whose log has no room at the first attempt."""

    def __init__(self) -> None:
        self.attempts = 0

    def store(self, *_: Any, whole: bool) -> None:
        del whole
        self.attempts += 1
        if self.attempts == 1:
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, "the next file is being made")


@pytest.mark.parametrize("is_deposed", [True, False])
def test_batch_waiting_for_space_is_refused_once_broker_is_fenced(is_deposed: bool) -> None:
    confirmations, writer = Confirmations(), FullOnce()

    async def room_made() -> bool:
        if is_deposed:
            confirmations.fence("there is another master")
        else:
            confirmations.are_replicas_enough = False
        return True

    nothing = cast(Any, None)
    services = SendServices(
        live=nothing,
        clock=nothing,
        random=nothing,
        writer=cast(MessageWriter, writer),
        safety=Safety(
            confirmations=confirmations,
            topics_saved=lambda: None,
            sync_flush_timeout_ms=5000,
            refuses_without_replicas=True,
        ),
        intake=nothing,
        properties_suffix=nothing,
        store_host=nothing,
        room_made=room_made,
        is_closing=nothing,
    )
    with pytest.raises(RefusedError, match="another master" if is_deposed else "too few slaves"):
        asyncio.run(services.store(b"", b"", Sender(b"", b"", "", 0)))
    assert writer.attempts == 1
