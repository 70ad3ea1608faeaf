import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from ternmq_broker.config import BrokerConfig
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.send.dedup import DuplicateRecord, DuplicateSearch
from ternmq_broker.send.message_writer import MessageWriter, SenderInfo
from ternmq_broker.send.processor import SendProcessor
from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.errors import BrokerBusy, BrokerDraining, RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_store.config import StoreConfig

SENDER: Final = SenderInfo(b"", b"", "", 0)


def live_settings() -> LiveSettings:
    return LiveSettings(BrokerConfig(), StoreConfig())


def void(_: object) -> None:
    """Return nothing."""


class FullOnce:
    """A writer whose log has no room at the first attempt."""

    def __init__(self) -> None:
        self.attempts = 0

    def store(self, *_: Any, atomic: bool) -> None:
        del atomic
        self.attempts += 1
        if self.attempts == 1:
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, "the next file is being made")


def processor_of(
    writer: FullOnce,
    confirmations: Confirmations,
    live: LiveSettings,
    space_made: Callable[[], None],
) -> SendProcessor:
    """Return a processor whose log gets room as soon as it is waited for."""
    nothing = cast(Any, None)

    async def made() -> bool:
        space_made()
        return True

    return SendProcessor(
        live=live,
        clock=nothing,
        random=nothing,
        writer=cast(MessageWriter, writer),
        ack_policy=AckPolicy(
            confirmations=confirmations,
            topics_saved=lambda: None,
            sync_flush_timeout_ms=5000,
            refuses_without_replicas=True,
        ),
        admission=Admission(bytes_max=0, bytes_per_stream_max=0),
        properties_suffix=nothing,
        store_host=nothing,
        space_made=made,
    )


@pytest.mark.parametrize("is_deposed", [True, False])
def test_batch_waiting_for_space_is_refused_once_broker_is_fenced(is_deposed: bool) -> None:
    confirmations, writer = Confirmations(), FullOnce()

    def space_made() -> None:
        if is_deposed:
            confirmations.fence("there is another master")
        else:
            confirmations.are_replicas_enough = False

    processor = processor_of(writer, confirmations, live_settings(), space_made)
    with pytest.raises(RefusedError, match="another master" if is_deposed else "too few slaves"):
        asyncio.run(processor.store(b"", b"", SENDER))
    assert writer.attempts == 1


def test_batch_waiting_for_space_is_refused_once_broker_drains() -> None:
    live, writer = live_settings(), FullOnce()
    processor = processor_of(
        writer, Confirmations(), live, lambda: void(live.update({"broker.draining": "true"}))
    )
    with pytest.raises(BrokerDraining, match="until `promote` or `undrain`"):
        asyncio.run(processor.store(b"", b"", SENDER))
    assert writer.attempts == 1
    asyncio.run(processor.store(b"", b"", SENDER, is_reply=True))
    assert writer.attempts == 2


class FoundFirst:
    """A look-up that finds the first record of every batch."""

    async def find(
        self, _records: bytes, _sizes: object, _permits: object
    ) -> dict[int, DuplicateRecord]:
        return {0: DuplicateRecord(0, 5, 50, 9, 100)}


def test_retry_refused_by_draining_broker_tells_what_it_found_stored() -> None:
    live = live_settings()
    live.update({"broker.draining": "true"})
    processor = processor_of(FullOnce(), Confirmations(), live, lambda: None)
    processor = replace(processor, duplicates=cast(DuplicateSearch, FoundFirst()))
    sizes = (20).to_bytes(4, "little") * 3
    stored = asyncio.run(processor.store_again(bytes(60), sizes, SENDER, atomic=False))
    assert stored.queue_offsets.tolist() == [5, -1, -1]
    assert stored.physical_offsets.tolist() == [50, -1, -1]
    assert [each.row for each in stored.refused] == [1, 2]
    assert {each.code for each in stored.refused} == {ResponseCode.GO_AWAY}
    assert stored.end == 100
    with pytest.raises(BrokerDraining):
        asyncio.run(processor.store_again(bytes(60), sizes, SENDER, atomic=True))
