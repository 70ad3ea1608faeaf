import asyncio
import errno
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ternmq_broker.state import topics
from ternmq_model.errors import (
    InvalidParameter,
    MessageRefused,
    PermissionRefused,
    RefusedError,
    TopicNotFound,
)
from ternmq_model.response_code import ResponseCode as Code
from ternmq_model.route import Permission
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import bodies, offsets_of, serving, stored, world


def test_send_stream_opens_with_the_parameters_records_need() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            opened = (await client.open_sender()).opened
            assert opened.born_host[:4] == opened.store_host[:4] == bytes((127, 0, 0, 1))
            assert opened.properties_suffix == (
                b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
                b"__CRC32#\x010000000000\x02"
            )
            assert opened.body_bytes_max == 4 << 20
            assert opened.properties_bytes_max == 32_767
            assert opened.batch_bytes_max == 1 << 20

    run_in_virtual_time(main())


def test_batch_may_carry_many_topics_and_queues() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2, "B": 1}) as (_, client):
            sender = await client.open_sender()
            reply = await sender.send(
                sender.record("A", b"1", queue_id=0),
                sender.record("B", b"2", queue_id=0),
                sender.record("A", b"3", queue_id=1),
                sender.record("A", b"4", queue_id=0),
            )
            assert reply.status.code == Code.SUCCESS
            assert offsets_of(reply.queue_offsets) == [0, 0, 0, 1]
            physical = offsets_of(reply.physical_offsets)
            assert physical[0] == 0
            assert physical == sorted(physical)
            assert not reply.refused
            assert bodies(await client.pull("A", queue_id=0)) == [b"1", b"4"]
            assert bodies(await client.pull("B", queue_id=0)) == [b"2"]

    run_in_virtual_time(main())


def test_refused_records_of_a_batch_are_named_and_others_stored() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}, auto_create_topics=False) as (_, client):
            await client.put_topic("ReadOnly", 1, Permission.READ)
            sender = await client.open_sender()
            good = sender.record("A", b"good")
            reply = await sender.send(
                sender.record("Unknown"),
                good,
                sender.record("A", queue_id=2),
                sender.record("ReadOnly"),
                sender.record("SCHEDULE_TOPIC_XXXX"),
                sender.record("TBW102"),
                good[:-1] + b"\x03",
                sender.record("A", properties={"DELAY": "soon"}),
                sender.record("A", b"last", queue_id=1),
            )
            assert reply.status.code == Code.SUCCESS
            assert offsets_of(reply.queue_offsets) == [-1, 0, -1, -1, -1, -1, -1, -1, 0]
            refused = {each.index: each.status for each in reply.refused}
            assert list(refused) == [0, 2, 3, 4, 5, 6, 7]
            assert refused[0].code == Code.TOPIC_NOT_EXIST
            assert "'Unknown'" in refused[0].remark
            assert refused[2].code == Code.INVALID_PARAMETER
            assert "queues 0 to 1, not 2" in refused[2].remark
            assert [refused[index].code for index in (3, 4, 5)] == [Code.NO_PERMISSION] * 3
            assert [refused[index].code for index in (6, 7)] == [Code.MESSAGE_ILLEGAL] * 2
            assert "'DELAY'='soon' is no number" in refused[7].remark
            assert bodies(await client.pull("A", queue_id=1)) == [b"last"]

    run_in_virtual_time(main())


def test_topic_beyond_the_limit_is_refused_to_senders_and_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            monkeypatch.setattr(topics, "REGISTERED_BYTES_MAX", 30)
            sender = await client.open_sender()
            reply = await sender.send(sender.record("New"), sender.record("A"))
            assert offsets_of(reply.queue_offsets) == [-1, 0]
            (refused,) = reply.refused
            assert refused.status.code == Code.SERVICE_NOT_AVAILABLE
            assert "'New' does not fit: a broker has at most 30 bytes" in refused.status.remark
            with pytest.raises(RefusedError, match="'New' does not fit"):
                await client.put_topic("New")
            with pytest.raises(RefusedError, match="'New' does not fit"):
                await client.send("New", auto_create=messages.AutoCreate(template_topic="TBW102"))

    run_in_virtual_time(main())


def test_batch_without_good_records_stores_nothing() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            reply = await sender.send(sender.record("A", queue_id=1))
            assert offsets_of(reply.queue_offsets) == offsets_of(reply.physical_offsets) == [-1]
            reply = await sender.send(sender.record("A"), sizes=[5])
            assert reply.status.code == Code.MESSAGE_ILLEGAL
            assert "do not add up" in reply.status.remark
            reply = await sender.send()
            assert reply.status.code == Code.MESSAGE_ILLEGAL
            reply = await sender.send(sender.record("A"))
            assert offsets_of(reply.physical_offsets) == [0]

    run_in_virtual_time(main())


def test_send_creates_its_topic_and_saves_it_before_answering() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            sender = await client.open_sender()
            reply = await sender.send(sender.record("New", queue_id=3))
            assert offsets_of(reply.queue_offsets) == [0]
            saved = around.files.nodes[around.config.data / "config" / "topics.json"]
            assert '"New"' in saved.data.tobytes().decode()
            reply = await sender.send(sender.record("New", queue_id=4))
            assert "queues 0 to 3" in reply.refused[0].status.remark

    run_in_virtual_time(main())


@pytest.mark.parametrize("first", ["batch", None])
def test_stream_begins_with_open(first: str | None) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            stream = client.connection.open(service_methods.SEND_STREAM)
            request = service_methods.SEND_STREAM.request()
            if first:
                getattr(request, first).SetInParent()
            await stream.write(request)
            with pytest.raises(InvalidParameter, match="begins with `open`"):
                await stream.read()

    run_in_virtual_time(main())


def test_synchronous_sends_are_answered_after_a_shared_sync() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, flush_mode=FlushMode.SYNC) as (around, client):
            around.sync_s = 0.5
            senders = [await client.open_sender() for _ in range(3)]
            loop = asyncio.get_running_loop()
            began_s, before = loop.time(), around.files.syncs
            replies = await asyncio.gather(*(sender.send(sender.record("A")) for sender in senders))
            assert 0.5 <= loop.time() - began_s < 1.1
            assert around.files.syncs - before <= 4
            assert sorted(offsets_of(reply.queue_offsets)[0] for reply in replies) == [0, 1, 2]

    run_in_virtual_time(main())


def test_next_batch_is_appended_while_the_previous_waits_for_the_disk() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, flush_mode=FlushMode.SYNC) as (around, client):
            around.sync_s = 0.5
            sender = await client.open_sender()
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            for number in range(4):
                await sender.write(sender.record("A", b"%d" % number))
            replies = [await sender.read() for _ in range(4)]
            assert loop.time() - began_s < 1.1
            assert [offsets_of(reply.queue_offsets)[0] for reply in replies] == [0, 1, 2, 3]

    run_in_virtual_time(main())


def test_slow_disk_is_reported_and_the_message_appears_later() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, flush_mode=FlushMode.SYNC) as (around, client):
            around.sync_s = 8.0
            sender = await client.open_sender()
            reply = await sender.send(sender.record("A"))
            assert reply.status.code == Code.FLUSH_DISK_TIMEOUT
            assert offsets_of(reply.queue_offsets) == [0]
            assert (await client.pull("A")).status.code == Code.PULL_NOT_FOUND
            answer = await client.send("A", b"two", queue_id=0)
            assert answer.status.code == Code.FLUSH_DISK_TIMEOUT
            assert bodies(await client.pull("A", wait_ms=15_000)) == [b"body"]
            around.sync_s = 0.0

    run_in_virtual_time(main())


def test_failed_disk_stops_sends_and_reads_go_on() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, flush_mode=FlushMode.SYNC) as (around, client):
            sender = await client.open_sender()
            await sender.send(sender.record("A", b"safe"))
            around.files.sync_error = OSError("broken disk")
            reply = await sender.send(sender.record("A", b"lost"))
            assert reply.status.code == Code.SERVICE_NOT_AVAILABLE
            assert reply.status.may_have_happened
            assert "broken disk" in reply.status.remark
            reply = await sender.send(sender.record("A", b"refused"))
            assert reply.status.code == Code.SERVICE_NOT_AVAILABLE
            assert not reply.status.may_have_happened
            with pytest.raises(RefusedError, match="broken disk"):
                await client.send("A")
            assert bodies(await client.pull("A")) == [b"safe"]
            around.files.sync_error = None

    run_in_virtual_time(main())


def test_unary_send_with_a_failed_sync_is_in_doubt() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, flush_mode=FlushMode.SYNC) as (around, client):
            await client.send("A")
            around.files.sync_error = OSError("broken disk")
            with pytest.raises(RefusedError, match="broken disk") as caught:
                await client.send("A")
            assert caught.value.may_have_happened
            with pytest.raises(RefusedError, match="broken disk") as caught:
                await client.send("A")
            assert not caught.value.may_have_happened
            around.files.sync_error = None

    run_in_virtual_time(main())


class FrozenTopics(MemoryFileSystem):
    """A disk on which `topics.json` cannot be replaced."""

    is_frozen = False

    def rename(self, old: Path, new: Path) -> None:
        if self.is_frozen and new.name == "topics.json":
            raise OSError(errno.ENOSPC, "frozen")
        super().rename(old, new)


def test_send_whose_new_topic_cannot_be_saved_is_in_doubt() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            files = around.files = FrozenTopics()
            broker = around.broker()
            await broker.__aenter__()
            client = await around.connect(broker)
            sender = await client.open_sender()
            files.is_frozen = True
            with pytest.raises(RefusedError, match=r"topics\.json") as caught:
                await client.send("New", b"unary", queue_id=0)
            assert caught.value.may_have_happened
            reply = await sender.send(sender.record("New2", b"streamed"))
            assert reply.status.code == Code.SERVICE_NOT_AVAILABLE
            assert reply.status.may_have_happened
            assert bodies(await client.pull("New")) == [b"unary"]
            files.is_frozen = False
            await broker.__aexit__(None, None, None)

    run_in_virtual_time(main())


def test_send_whose_new_topic_saves_too_slowly_is_reported_as_stored() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            sender = await client.open_sender()
            around.sync_s = 8.0
            reply = await client.send("New", b"1", queue_id=0)
            assert reply.status.code == Code.FLUSH_DISK_TIMEOUT
            streamed = await sender.send(sender.record("New2"))
            assert streamed.status.code == Code.FLUSH_DISK_TIMEOUT
            assert bodies(await client.pull("New")) == [b"1"]
            around.sync_s = 0.0

    run_in_virtual_time(main())


def test_stream_beyond_its_share_is_left_unread_then_answered_busy() -> None:
    async def main() -> None:
        limits: dict[str, Any] = {
            "unanswered_max_bytes": 1 << 20,
            "stream_unanswered_max_bytes": 1 << 20,
        }
        async with serving(topics={"A": 1}, flush_mode=FlushMode.SYNC, **limits) as (
            around,
            client,
        ):
            around.sync_s = 2.0
            sender = await client.open_sender()
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await sender.write(sender.record("A", bytes(1 << 20)))
            await sender.write(sender.record("A", b"busy"))
            await asyncio.sleep(0.1)
            assert (await client.pull("A")).max_offset == 0
            first, second = await sender.read(), await sender.read()
            assert first.status.code == Code.SUCCESS
            assert second.status.code == Code.SYSTEM_BUSY
            assert loop.time() - began_s < 4.1
            around.sync_s = 0.0
            assert (await sender.send(sender.record("A"))).status.code == Code.SUCCESS
            assert (await client.pull("A")).max_offset == 2

    run_in_virtual_time(main())


def test_unary_send_is_stored_with_the_brokers_additions() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            reply = await client.send(
                "New",
                b"hello",
                properties={"TAGS": "a", "x": "y"},
                queue_id=2,
                flag=7,
                born_at_ms=5,
            )
            assert (reply.queue_id, reply.queue_offset) == (2, 0)
            assert len(reply.message_id) == len(reply.offset_message_id) == 32
            (message,) = stored(await client.pull("New", queue_id=2))
            assert message.body == b"hello"
            assert message.tags == "a"
            assert message.message_id == reply.message_id
            assert message.offset_message_id == reply.offset_message_id
            assert message.born_at_ms == 5
            assert message.flag == 7
            assert message.properties["CLUSTER"] == "DefaultCluster"

    run_in_virtual_time(main())


def test_broker_picks_a_queue_and_keeps_a_given_key() -> None:
    async def main() -> None:
        async with serving(topics={"A": 4}) as (_, client):
            replies = [
                await client.send("A", queue_id=-1, properties={"UNIQ_KEY": f"K{number}"})
                for number in range(32)
            ]
            assert {reply.queue_id for reply in replies} == {0, 1, 2, 3}
            assert replies[5].message_id == "K5"

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"topic": "no good"}, InvalidParameter, "'no good'"),
        ({"topic": ""}, InvalidParameter, "must not be empty"),
        ({"topic": "x" * 128}, InvalidParameter, "128 characters"),
        ({"body": bytes((4 << 20) + 1)}, MessageRefused, "4194305 bytes"),
        ({"properties": {"a": "b\x01"}}, MessageRefused, "'a'"),
        ({"properties": {"a\x02": "b"}}, MessageRefused, "separate"),
        ({"properties": {"a": ""}}, MessageRefused, "empty"),
        ({"properties": {"a": "b" * 32_700}}, MessageRefused, "at most 32767"),
        ({"properties": {"TRAN_MSG": "true"}}, MessageRefused, "'TRAN_MSG' without 'PGROUP'"),
        ({"properties": {"TIMER_DELAY_MS": "5s"}}, MessageRefused, "'TIMER_DELAY_MS'='5s'"),
        ({"properties": {"REAL_TOPIC": "A"}}, MessageRefused, "'REAL_TOPIC'"),
        ({"sys_flag": 4}, MessageRefused, "sys_flag"),
        ({"queue_id": 4}, InvalidParameter, "queues 0 to 3, not 4"),
        ({"queue_id": -2}, InvalidParameter, "-2"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, PermissionRefused, "RMQ_SYS_TRANS_HALF_TOPIC"),
        ({"topic": "Unknown", "auto_create": {}}, TopicNotFound, "'Unknown'"),
        (
            {"topic": "Unknown", "auto_create": {"template_topic": "A"}},
            TopicNotFound,
            "'Unknown'",
        ),
    ],
)
def test_bad_message_is_refused_with_its_fault(
    fields: dict[str, Any], error: type[RefusedError], says: str
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 4}) as (_, client):
            asked: dict[str, Any] = {"topic": "A"} | fields
            with pytest.raises(error, match=says):
                await client.send(**asked)
            assert (await client.pull("A")).max_offset == 0
            assert (await client.send("A")).queue_offset == 0

    run_in_virtual_time(main())


def test_full_disk_refuses_sends_and_the_broker_goes_on() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            sender = await client.open_sender()
            around.files.space_bytes = 0
            reply = await sender.send(sender.record("A"))
            assert reply.status.code == Code.SERVICE_NOT_AVAILABLE
            assert "space" in reply.status.remark
            around.files.space_bytes = None
            reply = await sender.send(sender.record("A"))
            assert reply.status.code == Code.SUCCESS

    run_in_virtual_time(main())


def test_send_waits_for_the_next_file_of_the_log() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            sender = await client.open_sender()
            await sender.send(sender.record("A", bytes(2 << 20)))
            around.sync_s = 1.0
            await asyncio.sleep(1.1)  # the next file is being made now
            reply = await sender.send(sender.record("A", bytes(2 << 20)))
            assert reply.status.code == Code.SUCCESS
            around.sync_s = 0.0

    run_in_virtual_time(main())


def test_record_longer_than_a_file_is_refused() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            reply = await sender.send(sender.record("A", bytes(4 << 20)))
            assert reply.status.code == Code.MESSAGE_ILLEGAL
            assert StoreConfig().commit_log_file_bytes > 4 << 20

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", range(8))
def test_stored_records_are_readable_whatever_bytes_arrive(seed: int) -> None:
    random = Random(seed)

    def damaged(good: bytes) -> bytes:
        data = bytearray(good)
        for _ in range(random.choice((0, 1, 1, 2, 30))):
            data[random.randrange(len(data))] = random.randrange(256)
        return bytes(data[: random.choice((None, None, None, random.randrange(len(data))))])

    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            sender = await client.open_sender()
            stored_count = 0
            for _ in range(150):
                records = [
                    damaged(sender.record("A", random.randbytes(20), queue_id=random.randrange(2)))
                    for _ in range(random.randrange(1, 6))
                ]
                lies = [random.randrange(-5, 300) for _ in records]
                sizes = lies if random.random() < 0.1 else None
                reply = await sender.send(*records, sizes=sizes)
                refused = {each.index for each in reply.refused}
                for index, offset in enumerate(offsets_of(reply.queue_offsets)):
                    assert (offset < 0) == (index in refused)
                    stored_count += offset >= 0
            assert stored_count > 50
            found = 0
            for queue_id in range(2):
                offset = 0
                while (pulled := await client.pull("A", offset, queue_id=queue_id)).records:
                    found += len(stored(pulled))
                    offset = pulled.next_offset
            # A damaged name may be another legal one.
            assert stored_count - 10 <= found <= stored_count

    run_in_virtual_time(main())
