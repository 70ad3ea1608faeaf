"""Readiness of the transactions of a broker: their table is filled, and the broker stays."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from ternmq_broker.storage.admission import Admission
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode

_READY_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Admission of requests once the table is filled. Owned by the broker's loop."""

    ready: asyncio.Event
    """Set once the table is filled."""

    admission: Admission

    async def check(self) -> None:
        """Wait a few seconds for a start to be over.

        Raises:
            RefusedError: SERVICE_NOT_AVAILABLE: the start takes longer, or the broker is closing.
        """
        self.admission.check()
        if not self.ready.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_READY_TIMEOUT_S):
                    await self.ready.wait()
        if not self.ready.is_set():
            remark = "the broker still reads its log for what became of transactions"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
