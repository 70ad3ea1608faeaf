import asyncio
import contextlib
import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import RefusedError, TernError
from ternmq_model.message_id import offset_message_id
from ternmq_model.names import CHECK_MAX_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import (
    SMALL_STORE,
    Client,
    SessionStream,
    offsets_of,
    serving,
    stored,
    world,
)
from tests.support.transactions import (
    COMMIT,
    GROUP,
    ROLLBACK,
    UNKNOWN,
    Begun,
    begin,
    bodies_of,
    end,
    lying,
    open_producer,
    question,
)

ONE = {"flights": 1}


@pytest.mark.parametrize("mode", FlushMode)
def test_committed_half_message_is_visible_and_others_are_not(mode: FlushMode) -> None:
    async def main() -> None:
        async with serving(topics=ONE, flush_mode=mode) as (_, client):
            one, two, three = await begin(client, b"one", b"two", b"three")
            assert await bodies_of(client) == []
            replies = await end(client, two.end(COMMIT), one.end(ROLLBACK), three.end(UNKNOWN))
            assert [reply.status.code for reply in replies] == [0, 0, 0]
            assert (replies[0].queue_id, replies[0].queue_offset) == (0, 0)
            (message,) = await lying(client)
            assert message.body == b"two"
            assert message.message_id == "two"
            assert message.header.prepared_offset == two.offset
            assert message.sys_flag & 0xC == 0x8
            assert message.properties["PGROUP"] == GROUP
            assert message.properties["REAL_TOPIC"] == "flights"

    run_in_virtual_time(main())


def test_repeated_end_has_the_same_answer_and_stores_nothing() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            one, two = await begin(client, b"one", b"two")
            first = await end(client, one.end(COMMIT), one.end(COMMIT), two.end(ROLLBACK))
            again = await end(client, one.end(COMMIT), one.end(COMMIT), two.end(ROLLBACK))
            assert first == again
            assert await bodies_of(client) == [b"one"]

    run_in_virtual_time(main())


def test_concurrent_ends_of_a_transaction_get_the_same_answer() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            (one,) = await begin(client, b"one")
            replies = await asyncio.gather(*(end(client, one.end(COMMIT)) for _ in range(20)))
            assert all(reply == replies[0] for reply in replies)
            assert await bodies_of(client) == [b"one"]

    run_in_virtual_time(main())


def test_contradicting_or_foreign_end_is_refused() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            one, two = await begin(client, b"one", b"two")
            await end(client, one.end(COMMIT), two.end(ROLLBACK))
            (three,) = await begin(client, b"three")
            for request, code, word in (
                (one.end(ROLLBACK), ResponseCode.ILLEGAL_OPERATION, "was committed already"),
                (two.end(COMMIT), ResponseCode.ILLEGAL_OPERATION, "was rolled back already"),
                (three.end(COMMIT, group="others"), ResponseCode.INVALID_PARAMETER, "group"),
                (three.end(COMMIT, key="x"), ResponseCode.INVALID_PARAMETER, "message"),
                (three.end(COMMIT, topic="x"), ResponseCode.INVALID_PARAMETER, "topic"),
                (one.end(COMMIT, group="others"), ResponseCode.INVALID_PARAMETER, "group"),
            ):
                (reply,) = await end(client, request)
                assert reply.status.code == code, request
                assert word in reply.status.remark
            three = three.__class__("flights", "three", three.offset + 1)
            with pytest.raises(RefusedError, match="no transaction begins at offset"):
                await client.call(service_methods.END_TRANSACTION, three.end(COMMIT))
            assert await bodies_of(client) == [b"one"]

    run_in_virtual_time(main())


def test_transaction_is_checked_at_6_s_then_every_30_s_and_then_parked() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (around, client):
            session = await open_producer(client)
            begun_ms = around.clock.monotonic_ms()
            (one,) = await begin(client, b"one")
            asked: list[int] = []
            for number in range(1, 16):
                told = await question(session)
                asked.append(around.clock.monotonic_ms() - begun_ms)
                assert (told.transaction_offset, told.message_id) == (one.offset, "one")
                assert (told.producer_group, told.check) == (GROUP, number)
                await session.write(
                    service_methods.SESSION.request(heartbeat={"producer_groups": [GROUP]})
                )
            for number, at_ms in enumerate(asked):
                assert 6_000 + 30_000 * number <= at_ms < 6_000 + 30_500 * number + 1_000
            await asyncio.sleep(31)
            assert await bodies_of(client) == []
            (reply,) = await end(client, one.end(COMMIT))
            assert "rolled back already: no producer" in reply.status.remark
            assert await bodies_of(client, CHECK_MAX_TOPIC) == [b"one"]

    run_in_virtual_time(main())


def test_producer_is_not_checked_within_the_messages_immunity() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (around, client):
            session = await open_producer(client)
            await begin(client, b"one", immunity_s=50)
            told = await question(session)
            assert 50_000 <= around.clock.monotonic_ms() < 51_000
            assert told.check == 1

    run_in_virtual_time(main())


def test_checks_are_not_counted_without_a_producer() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            (one,) = await begin(client, b"one")
            await asyncio.sleep(900)
            session = await open_producer(client)
            told = await question(session)
            assert told.check == 1
            (reply,) = await end(client, one.end(COMMIT))
            assert not reply.status.code
            assert await bodies_of(client) == [b"one"]

    run_in_virtual_time(main())


def test_transaction_without_producer_is_parked_when_retention_reaches_it() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, file_reserved_hours=1)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                await begin(client, b"one")
                await asyncio.sleep(3660)
                assert await bodies_of(client, CHECK_MAX_TOPIC) == [b"one"]
                assert await bodies_of(client) == []
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_clean", [True, False])
def test_restarted_broker_resumes_open_transactions(is_clean: bool) -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                session = await open_producer(client)
                one, two, three, four = await begin(client, b"1", b"2", b"3", b"4")
                await end(client, one.end(COMMIT), two.end(ROLLBACK))
                await asyncio.sleep(40)
                assert (await question(session)).check == 1
                if not is_clean:
                    await end(client, three.end(COMMIT))
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                session = await open_producer(client)
                told = await question(session)
                assert told.transaction_offset in (three.offset, four.offset)
                assert told.check == 3
                codes = [
                    reply.status.code
                    for reply in await end(
                        client,
                        one.end(COMMIT),
                        two.end(COMMIT),
                        three.end(COMMIT),
                        four.end(ROLLBACK),
                        one.end(ROLLBACK),
                        two.end(ROLLBACK),
                    )
                ]
                refused = ResponseCode.ILLEGAL_OPERATION
                assert codes == [0, refused, 0, 0, refused, 0]
                assert sorted(await bodies_of(client)) == [b"1", b"3"]
                await client.connection.close()

    run_in_virtual_time(main())


def test_end_is_not_confirmed_by_a_failing_disk() -> None:
    async def main() -> None:
        async with serving(topics=ONE, flush_mode=FlushMode.SYNC) as (around, client):
            one, two = await begin(client, b"one", b"two")
            around.files.sync_error = OSError(errno.EIO, "the disk failed")
            replies = await end(client, one.end(COMMIT), two.end(ROLLBACK))
            for reply in replies:
                assert reply.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert reply.status.may_have_happened
            assert await bodies_of(client) == []

    run_in_virtual_time(main())


def test_thousands_of_open_transactions_are_checked_and_ended_elsewhere() -> None:
    count = 3_000

    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                for first in range(0, count, 500):
                    await begin(client, *(b"%d" % n for n in range(first, first + 500)))
                await asyncio.sleep(20)
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                session = await open_producer(client)
                asked: dict[str, int] = {}
                while len(asked) < count:
                    told = await question(session)
                    assert told.message_id not in asked
                    asked[told.message_id] = told.transaction_offset
                begun = [Begun("flights", key, offset) for key, offset in asked.items()]
                for first in range(0, count, 1000):
                    part = begun[first : first + 1000]
                    replies = await end(client, *(each.end(COMMIT) for each in part))
                    assert not any(reply.status.code for reply in replies)
                assert sorted(await bodies_of(client)) == sorted(b"%d" % n for n in range(count))
                await asyncio.sleep(10)
                await client.connection.close()
            kept = around.files.open(Path("/broker/config/consumerOffset.json")).read(0, 1 << 16)
            offsets = json.loads(kept)["offsetTable"]
            assert offsets["RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"] == {"0": 2 * count}
            assert offsets["RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS"]["0"] > 1

    run_in_virtual_time(main())


def test_damaged_half_message_is_given_up_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (around, client):
            session = await open_producer(client)
            one, _ = await begin(client, b"one", b"two")
            log = next(
                node for path, node in around.files.nodes.items() if "commitlog" in str(path)
            )
            log.data[one.offset + 88] ^= 1
            told = await question(session)
            assert told.message_id == "two"
            (reply,) = await end(client, one.end(COMMIT))
            assert "rolled back already: its half message cannot be read" in reply.status.remark

    run_in_virtual_time(main())
    assert "transaction given up transaction=" in caplog.text


def test_half_message_blocking_a_files_deletion_is_moved_uncounted() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(
                SMALL_STORE, commit_log_file_bytes=64 << 10, forced_reserved_hours=0
            )
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                (one,) = await begin(client, b"one", immunity_s=2_000)
                for number in range(40):
                    await client.send("flights", bytes(8_000), properties={"KEYS": str(number)})
                    await asyncio.sleep(0.1)
                around.files.used = 0.85
                await asyncio.sleep(120)
                told = await client.call(
                    service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
                )
                assert told.log_min_offset > one.offset
                assert (told.transactions.open, told.transactions.asked) == (1, 0)
                await asyncio.sleep(1_850)
                session = await open_producer(client)
                asked = await question(session)
                assert (asked.check, asked.transaction_offset) == (1, one.offset)
                assert 2_000_000 <= around.clock.monotonic_ms() < 2_001_000
                (reply,) = await end(client, one.end(COMMIT))
                assert not reply.status.code
                (message,) = stored(await client.pull("flights", reply.queue_offset))
                assert message.body == b"one"
                assert "TRAN_BEGAN_MS" not in message.properties
                told = await client.call(
                    service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
                )
                assert (told.transactions.open, told.transactions.committed) == (0, 1)
                await client.connection.close()

    run_in_virtual_time(main())


def test_log_files_stay_until_open_transactions_are_restored() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(
                SMALL_STORE, commit_log_file_bytes=64 << 10, clean_delay_ms=0
            )
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                one, *_ = await begin(client, *(b"%d" % number for number in range(3_000)))
                for _ in range(40):
                    await client.send("flights", bytes(8_000))
                await client.connection.close()
            around.files.used, around.sync_s = 0.85, 2.0
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(60)
                (reply,) = await end(client, one.end(COMMIT))
                assert not reply.status.code, reply.status.remark
                await client.connection.close()

    run_in_virtual_time(main())


def test_commit_waits_for_a_missing_topic_and_skips_a_missing_queue() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            await client.put_topic("flights", 4)
            sender = await client.open_sender(producer_group=GROUP)
            properties = {"UNIQ_KEY": "m", "TRAN_MSG": "true", "PGROUP": GROUP}
            reply = await sender.send(
                sender.record("flights", queue_id=3, body=b"m", properties=properties)
            )
            begun = Begun("flights", "m", offsets_of(reply.physical_offsets)[0])
            await client.call(
                service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="flights")
            )
            (refused,) = await end(client, begun.end(COMMIT))
            assert refused.status.code == ResponseCode.TOPIC_NOT_EXIST
            await client.put_topic("flights", 2)
            (done,) = await end(client, begun.end(COMMIT))
            assert (done.status.code, done.queue_id) == (0, 1)
            assert [each.body for each in await lying(client, "flights", 1)] == [b"m"]

    run_in_virtual_time(main())


def test_transactions_cannot_begin_when_disabled_or_over_the_limit() -> None:
    async def main() -> None:
        async with serving(topics=ONE, transactions_open_max=2) as (_, client):
            await begin(client, b"one", b"two")
            with pytest.raises(AssertionError, match="2 transactions are open"):
                await begin(client, b"three")
            values = {"broker.transactions_open_max": "4"}
            await client.call(
                service_methods.UPDATE_SETTINGS, admin.UpdateSettingsRequest(values=values)
            )
            await begin(client, b"three", b"four")
            with pytest.raises(AssertionError, match="4 transactions are open"):
                await begin(client, b"five")
        async with serving(topics=ONE, transactions_accepted=False) as (_, client):
            with pytest.raises(AssertionError, match="accepts no transactions"):
                await begin(client, b"three")

    run_in_virtual_time(main())


def test_undecided_messages_are_unreadable_to_clients() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            one, _ = await begin(client, b"one", b"two")
            host = (await client.open_sender()).opened.store_host
            await asyncio.sleep(1)
            for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
                with pytest.raises(TernError):
                    await client.pull(topic)
                with pytest.raises(TernError, match="belongs to the broker"):
                    await client.call(service_methods.QUERY_MESSAGES, by_key("one", topic))
            with pytest.raises(TernError, match="no message of any topic has the key"):
                await client.call(service_methods.QUERY_MESSAGES, by_key("one"))
            at = offset_message_id(host, PhysicalOffset(one.offset))
            view = messages.ViewMessageRequest(offset_message_id=at)
            with pytest.raises(TernError, match="no message has the id"):
                await client.call(service_methods.VIEW_MESSAGE, view)
            await end(client, one.end(COMMIT))
            await asyncio.sleep(1)
            found = await client.call(service_methods.QUERY_MESSAGES, by_key("one"))
            assert len(found.record_sizes) == 4

    run_in_virtual_time(main())


def by_key(key: str, topic: str = "") -> messages.QueryMessagesRequest:
    return messages.QueryMessagesRequest(topic=topic, key=key, is_unique_key=True)


async def begin_longest(client: Client) -> Begun:
    """Begin a transaction whose half message has the longest properties that are taken."""
    sender = await client.open_sender(producer_group=GROUP)
    for padding in range(32_690, 0, -1):
        properties = {"UNIQ_KEY": "long", "TRAN_MSG": "true", "PGROUP": GROUP, "p": "x" * padding}
        reply = await sender.send(sender.record("flights", body=b"long", properties=properties))
        if not reply.refused:
            await sender.stream.finish()
            return Begun("flights", "long", offsets_of(reply.physical_offsets)[0])
        assert "properties with what the broker adds of" in reply.refused[0].status.remark
    raise AssertionError("none is taken")


async def asked_in(session: SessionStream, seconds: float) -> list[tuple[str, int]]:
    """Return which messages were asked about within some time, and how often each by then."""
    asked: list[tuple[str, int]] = []

    async def beat() -> None:
        while True:
            heartbeat = {"producer_groups": [GROUP]}
            await session.write(service_methods.SESSION.request(heartbeat=heartbeat))
            await asyncio.sleep(10)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), OwnedTasks() as tasks:
            tasks.spawn(beat(), "beat")
            while True:
                told = await question(session)
                asked.append((told.message_id, told.check))
    return asked


def test_longest_half_message_can_be_put_back_with_its_checks_counted() -> None:
    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            session = await open_producer(client)
            await begin_longest(client)
            asked = await asked_in(session, 480)
            assert asked == [("long", number) for number in range(1, 16)]
            (parked,) = await lying(client, CHECK_MAX_TOPIC)
            assert parked.body == b"long"

    run_in_virtual_time(main())


def test_half_message_that_no_longer_fits_does_not_stop_counting_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As another broker may have taken it.
    monkeypatch.setattr("ternmq_broker.storage.routed_batch.SPARE_BYTES", {})

    async def main() -> None:
        async with serving(topics=ONE) as (_, client):
            session = await open_producer(client)
            long = await begin_longest(client)
            await begin(client, b"other")
            asked = await asked_in(session, 480)
            assert asked.count(("long", 1)) == 16
            assert [each for each in asked if each[0] == "other"] == [
                ("other", number) for number in range(1, 16)
            ]
            (reply,) = await end(client, long.end(COMMIT))
            assert not reply.status.code
            assert await bodies_of(client) == [b"long"]

    run_in_virtual_time(main())
