"""Replies that are sent to a broker."""

import pytest

from ternmq_model.errors import ClientNotOnline, MessageRefused
from ternmq_model.record.format import decode_record
from ternmq_model.response_code import ResponseCode as Code
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
