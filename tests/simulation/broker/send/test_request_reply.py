"""Replies that are sent to a broker."""

import asyncio

import pytest

from ternmq_broker.groups.sessions import SessionOutbox
from ternmq_broker.storage.admission import Admission
from ternmq_model.errors import BrokerBusy, ClientNotOnline, MessageRefused
from ternmq_model.record.format import decode_record
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import bodies, serving

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"MSG_TYPE": "reply", "CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "epoch_poll@1"}


def test_reply_goes_to_its_requesters_session_and_is_stored() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            session, _ = await client.open_session("epoch_poll@1")
            reply = await client.send(TOPIC, b"42", properties=PROPERTIES)
            told = await session.read()
            assert told is not None
            assert told.reply_arrived.correlation_id == "c1"
            record = decode_record(told.reply_arrived.record)
            assert record is not None
            assert record.body == b"42"
            assert reply.queue_offset == 0
            assert bodies(await client.pull(TOPIC)) == [b"42"]

    run_in_virtual_time(main())


def test_reply_is_forwarded_without_storage_when_configured() -> None:
    async def main() -> None:
        async with serving(store_replies=False) as (_, client):
            session, _ = await client.open_session("epoch_poll@1")
            reply = await client.send(TOPIC, b"42", properties=PROPERTIES)
            assert (reply.status.code, reply.queue_offset) == (0, -1)
            assert reply.message_id
            assert (await session.read()) is not None
            assert (await client.pull(TOPIC)).status.code == Code.PULL_NOT_FOUND

    run_in_virtual_time(main())


def test_reply_without_requester_is_refused_and_not_stored() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            with pytest.raises(ClientNotOnline, match="epoch_poll@1"):
                await client.send(TOPIC, b"42", properties=PROPERTIES)
            with pytest.raises(MessageRefused, match="CORRELATION_ID"):
                await client.send(TOPIC, b"42", properties={"MSG_TYPE": "reply"})
            assert (await client.pull(TOPIC)).status.code == Code.PULL_NOT_FOUND

    run_in_virtual_time(main())


def test_replies_that_their_requester_does_not_read_are_refused_as_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(_outbox: SessionOutbox) -> list[groups.SessionReply]:
        await asyncio.get_running_loop().create_future()
        return []

    monkeypatch.setattr(SessionOutbox, "next", never)

    async def main() -> None:
        async with serving(store_replies=False) as (_, client):
            await client.open_session("epoch_poll@1")
            for _ in range(7):
                await client.send(TOPIC, bytes(1 << 20), properties=PROPERTIES)
            with pytest.raises(BrokerBusy, match="'epoch_poll@1', or all clients, have too many"):
                await client.send(TOPIC, bytes(1 << 20), properties=PROPERTIES)

    run_in_virtual_time(main())


def test_reply_to_a_client_whose_stream_broke_is_refused() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            session, _ = await client.open_session("epoch_poll@1")
            session.cancel()
            await asyncio.sleep(0.1)
            with pytest.raises(ClientNotOnline, match="epoch_poll@1"):
                await client.send(TOPIC, b"42", properties=PROPERTIES)

    run_in_virtual_time(main())


def test_reply_is_not_forwarded_by_a_broker_without_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_full(_admission: Admission, _stream_bytes: int) -> bool:
        return False

    async def main() -> None:
        async with serving() as (_, client):
            session, _ = await client.open_session("epoch_poll@1")
            with monkeypatch.context() as patched:
                patched.setattr(Admission, "has_capacity", is_full)
                with pytest.raises(BrokerBusy, match="bytes are unanswered"):
                    await client.send(TOPIC, b"1", properties=PROPERTIES)
            await client.send(TOPIC, b"2", properties=PROPERTIES)
            told = await session.read()
            assert told is not None
            record = decode_record(told.reply_arrived.record)
            assert record is not None
            assert record.body == b"2"

    run_in_virtual_time(main())
