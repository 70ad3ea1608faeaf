import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from ternmq_broker.state.groups import GroupTable
from ternmq_broker.state.offsets import VersionedOffset
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.state.transaction_scan_offset import GROUP as TRANSACTIONS_GROUP
from ternmq_model.address import Address
from ternmq_model.errors import StoreFull
from ternmq_model.group_settings import GroupSettings
from ternmq_model.names import HALF_TOPIC, OP_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.route import TopicConfig
from ternmq_model.subscription import SQL92, parse_subscription
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.rpc import Call, ServerStream, stream
from ternmq_remoting.service_methods import METADATA
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.metadata import Pair, member, pair, same
from tests.support.records import batch_of, record
from tests.support.replicas import follow
from tests.support.stores import append, settle

SECOND_S = 1.0


def run(scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        async with pair() as both:
            await scenario(both)

    run_in_virtual_time(main())


def test_every_table_reaches_the_slave_within_a_second_of_each_change() -> None:
    async def scenario(both: Pair) -> None:
        tables = both.master.tables

        def delete() -> None:
            tables.topics.remove("T", now_ms=5)
            tables.offsets.remove_topic("T")
            tables.filters.remove_topic("T")

        condition = parse_subscription("T", "a > 1", SQL92, version_ms=1)
        changes: list[Callable[[], object]] = [
            lambda: tables.topics.put(TopicConfig("T", 4, 4), now_ms=1),
            lambda: tables.groups.use("G", now_ms=1),
            lambda: tables.groups.put(GroupSettings("G", consume_enabled=False), now_ms=2),
            lambda: both.master.commit(5),
            lambda: both.master.commit(3, 1),
            lambda: tables.delays.put(3, QueueOffset(8), now_ms=1),
            lambda: tables.filters.register("G", [condition], now_ms=1, log_end=PhysicalOffset(1)),
            lambda: tables.offsets.versions.reserve_tokens(1 << 40),
            delete,
        ]
        for number, change in enumerate(changes):
            change()
            await until(lambda: same(both), within_s=SECOND_S)
            await asyncio.sleep(0.1 * number)
        assert both.follower.age_ms() < 1000
        assert both.slave.told >= 2
        assert both.slave.gone == ["T"]

    run(scenario)


def test_bit_maps_of_earlier_messages_tell_a_slave_nothing_of_a_condition() -> None:
    async def scenario(both: Pair) -> None:
        append(both.slave.store, batch_of(record("T")))
        condition = parse_subscription("T", "a > 1", SQL92, version_ms=1)
        filters = both.slave.tables.filters
        end = PhysicalOffset(0)
        both.master.tables.filters.register("G", [condition], now_ms=1, log_end=end)
        await until(lambda: filters.get("T", "G") is not None)
        found = filters.get("T", "G")
        assert found is not None
        assert found.begin == both.slave.store.max_physical > 0

    run(scenario)


def test_slave_keeps_settings_offsets_and_filters_of_long_group() -> None:
    async def scenario(both: Pair) -> None:
        name, (master, slave) = "g" * 255, (both.master.tables, both.slave.tables)
        both.master.tables.topics.put(TopicConfig("T", 4, 4), now_ms=1)
        table = {"subscriptionGroupTable": {name: {"retryMaxTimes": 3}}}
        master.groups.take_over(GroupTable.from_dict(table, now_ms=5))
        master.offsets.merge(VersionedOffset(name, "T", 0, QueueOffset(7), 0))
        condition = parse_subscription("T", "a > 1", SQL92, version_ms=1)
        master.filters.register(name, [condition], now_ms=1, log_end=PhysicalOffset(0))
        await until(lambda: slave.filters.get("T", name) is not None, within_s=SECOND_S)
        await until(lambda: both.slave.offset(name) == (7, 0), within_s=SECOND_S)
        assert slave.groups.get(name) == GroupSettings(name, retries_max=3)

    run(scenario)


def test_slave_keeps_unused_entries_of_its_master() -> None:
    async def scenario(both: Pair) -> None:
        (master, slave), odd = (both.master.tables, both.slave.tables), {"../x": {"perm": 6}}
        topics, groups = {"topicConfigTable": odd}, {"subscriptionGroupTable": odd}
        master.topics.take_over(TopicTable.from_dict(topics, now_ms=5))
        master.groups.take_over(GroupTable.from_dict(groups, now_ms=5))
        await until(lambda: slave.topics.odd == slave.groups.odd == odd, within_s=SECOND_S)
        assert (slave.topics.get("../x"), slave.groups.get("../x")) == (None, None)
        await slave.save()
        both.slave.store.close()
        again = await member(both.network, "other", both.slave.files)
        assert again.tables.topics.odd == again.tables.groups.odd == odd

    run(scenario)


def test_slaves_files_have_what_its_next_start_needs() -> None:
    async def scenario(both: Pair) -> None:
        both.master.tables.topics.put(TopicConfig("T", 4, 4), now_ms=1)
        both.master.commit(3, 7)
        await until(lambda: same(both))
        await both.slave.tables.save()
        both.slave.store.close()
        again = await member(both.network, "other", both.slave.files)
        assert again.offset() == (3, 7)
        assert again.tables.topics.get("T") == TopicConfig("T", 4, 4)
        assert again.tables.groups.get("G") is not None

    run(scenario)


def test_offset_committed_at_slave_stays_until_master_has_more() -> None:
    async def scenario(both: Pair) -> None:
        both.master.tables.topics.put(TopicConfig("T", 4, 4), now_ms=1)
        both.master.commit(5)
        await until(lambda: same(both))
        both.connection = None
        both.slave.commit(9)
        both.slave.commit(2, group="HERE")
        both.master.commit(6)
        await both.connect()
        await asyncio.sleep(2)
        assert both.slave.offset() == (9, 0)
        assert both.slave.offset("HERE") == (2, 0)
        assert both.slave.tables.groups.get("HERE") is not None
        both.master.commit(10)
        await until(lambda: both.slave.offset() == (10, 0), within_s=SECOND_S)
        both.master.commit(1, 1)
        await until(lambda: both.slave.offset() == (1, 1), within_s=SECOND_S)

    run(scenario)


def test_deleted_group_goes_even_when_recreated_at_once() -> None:
    async def scenario(both: Pair) -> None:
        tables = both.master.tables
        tables.topics.put(TopicConfig("T", 4, 4), now_ms=1)
        both.master.commit(5, 3)
        both.master.commit(5, 3, group="OTHER")
        await until(lambda: same(both))
        for group in ("G", "OTHER"):
            tables.groups.remove(group, now_ms=2)
            tables.offsets.remove_group(group)
        both.master.commit(1)
        await until(lambda: same(both), within_s=SECOND_S)
        assert both.slave.offset() == (1, 0)
        assert both.slave.offset("OTHER") == (None, 0)
        assert both.slave.tables.groups.get("OTHER") is None

    run(scenario)


def test_recreated_topic_starts_over_at_the_slave() -> None:
    async def scenario(both: Pair) -> None:
        master, slave = both.master, both.slave
        master.tables.topics.put(TopicConfig("T", 1, 1), now_ms=1)
        append(master.store, batch_of(record("T", 0, b"old"), record("T", 0, b"old")))
        settle(master.store)
        master.commit(2)
        follow(master.store, slave.store)
        settle(slave.store)
        await until(lambda: same(both))
        master.store.delete_topic("T")
        master.tables.topics.remove("T", now_ms=2)
        master.tables.offsets.remove_topic("T")
        master.tables.topics.put(TopicConfig("T", 1, 1), now_ms=3)
        append(master.store, batch_of(record("T", 0, b"new")))
        settle(master.store)
        master.commit(0)
        follow(master.store, slave.store)
        await until(
            lambda: same(both) and slave.store.deletions == master.store.deletions,
            within_s=SECOND_S,
        )
        settle(slave.store)
        assert slave.offset() == (0, 0)
        assert slave.gone == ["T"], "who reads it is told"
        assert slave.store.queue_range("T", 0) == (0, 1)

    run(scenario)


def test_delivery_progress_counts_once_log_has_arrived() -> None:
    async def scenario(both: Pair) -> None:
        master, slave = both.master, both.slave
        append(master.store, batch_of(record("T", 0, b"delivered")))
        settle(master.store)
        master.tables.delays.put(3, QueueOffset(8), now_ms=1)
        master.tables.scan_offset.offset = PhysicalOffset(50)
        await master.tables.save_timer(TimerCheckpoint(read_ms=5, next_offset=3, look_behind=9))
        await asyncio.sleep(2)
        assert (slave.tables.delays.get(3), slave.tables.scan_offset.offset) == (0, 0)
        for offset in range(9, 20):  # it goes on all the time
            master.tables.delays.put(3, QueueOffset(offset), now_ms=1)
            append(master.store, batch_of(record("T", 0, b"delivered")))
            settle(master.store)
            await asyncio.sleep(0.3)
            if offset == 9:
                follow(master.store, slave.store)
                settle(slave.store)
        assert slave.tables.delays.get(3) in (8, 9)
        assert slave.tables.scan_offset.offset == 50
        assert slave.tables.timer == TimerCheckpoint(read_ms=5, next_offset=3, look_behind=9)
        follow(master.store, slave.store)
        settle(slave.store)
        await until(lambda: same(both), within_s=SECOND_S)

    run(scenario)


def test_progress_waiting_for_log_does_not_overwrite_later_progress() -> None:
    async def scenario(both: Pair) -> None:
        master, slave = both.master, both.slave
        append(master.store, batch_of(record("T", 0, b"delivered")))
        settle(master.store)
        master.tables.delays.put(3, QueueOffset(8), now_ms=1)
        await asyncio.sleep(2)
        assert slave.tables.delays.get(3) == 0
        follow(master.store, slave.store)
        settle(slave.store)
        master.tables.delays.put(3, QueueOffset(9), now_ms=1)
        await asyncio.sleep(2)
        assert slave.tables.delays.get(3) == 9

    run(scenario)


def test_transaction_progress_counts_once_log_has_arrived() -> None:
    async def scenario(both: Pair) -> None:
        master, slave = both.master, both.slave
        for topic in (HALF_TOPIC, OP_TOPIC):
            master.tables.topics.put(TopicConfig(topic, 1, 1), now_ms=1)
        append(master.store, batch_of(record("T", 0, b"end")))
        settle(master.store)
        for offset, topic in ((7, HALF_TOPIC), (5, OP_TOPIC)):
            at = QueueOffset(offset)
            master.tables.offsets.commit(TRANSACTIONS_GROUP, topic, 0, at, now_ms=1)
        master.commit(3)
        await until(lambda: slave.offset() == (3, 0), within_s=SECOND_S)
        await asyncio.sleep(2)
        assert slave.offset(TRANSACTIONS_GROUP, HALF_TOPIC) == (None, 0)
        follow(master.store, slave.store)
        settle(slave.store)
        half = (TRANSACTIONS_GROUP, HALF_TOPIC)
        await until(lambda: slave.offset(*half) == (7, 0), within_s=SECOND_S)
        assert slave.offset(TRANSACTIONS_GROUP, OP_TOPIC) == (5, 0)

    run(scenario)


def test_progress_waiting_for_log_is_resent_after_broken_stream() -> None:
    async def scenario(both: Pair) -> None:
        master, slave = both.master, both.slave
        append(master.store, batch_of(record("T", 0, b"delivered")))
        settle(master.store)
        master.tables.delays.put(3, QueueOffset(8), now_ms=1)
        await until(lambda: both.follower.age_ms() >= 0)
        await asyncio.sleep(2)
        both.network.cut("m")
        await asyncio.sleep(1)
        assert slave.tables.delays.get(3) == 0
        follow(master.store, slave.store)
        settle(slave.store)
        await until(lambda: slave.tables.delays.get(3) == 8, within_s=SECOND_S)

    run(scenario)


def test_table_without_disk_space_does_not_delay_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room(topic: str, *, at: PhysicalOffset) -> None:
        raise StoreFull(f"no room to delete {topic} at {at}")

    async def scenario(both: Pair) -> None:
        master, slave = both.master, both.slave
        append(master.store, batch_of(record("T", 0, b"old")))
        settle(master.store)
        with monkeypatch.context() as patch:
            patch.setattr(slave.store, "delete_topic", no_room)
            master.store.delete_topic("T")
            master.tables.topics.put(TopicConfig("U", 1, 1), now_ms=1)
            await until(lambda: slave.tables.topics.get("U") is not None, within_s=SECOND_S)
            assert both.follower.age_ms() == -1
        await until(lambda: slave.store.deletions == master.store.deletions, within_s=SECOND_S)
        await until(lambda: both.follower.age_ms() >= 0, within_s=SECOND_S)

    run(scenario)


def test_slave_deletes_32_topics_at_most_before_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(both: Pair) -> None:
        master, slave, turns = both.master, both.slave, [0]
        delete_topic = slave.store.delete_topic

        def count(*topics: str, at: PhysicalOffset) -> None:
            delete_topic(*topics, at=at)
            turns[-1] += len(topics)
            asyncio.get_running_loop().call_soon(turns.append, 0)

        monkeypatch.setattr(slave.store, "delete_topic", count)
        append(master.store, batch_of(record("T", 0, b"old")))
        settle(master.store)
        master.store.delete_topic(*(f"topic-{number}" for number in range(100)))
        await until(lambda: slave.store.deletions == master.store.deletions, within_s=SECOND_S)
        assert sum(turns) == 100
        assert max(turns) == 32

    run(scenario)


def test_tables_of_any_size_are_sent_in_pieces() -> None:
    async def scenario(both: Pair) -> None:
        for number in range(3000):
            both.master.tables.topics.put(TopicConfig(f"topic-{number:060}", 4, 4), now_ms=1)
        for number in range(10_000):
            both.master.commit(number, topic=f"topic-{number // 4:060}", queue_id=number % 4)
        await until(lambda: same(both), within_s=2)
        both.master.commit(10_001, topic=f"topic-{0:060}")
        await until(lambda: same(both), within_s=SECOND_S)

    run(scenario)


class Scripted:
    """A master that tells what a test says."""

    def __init__(self, table: str, text: str) -> None:
        self._reply = (table, text)

    async def metadata(
        self,
        stream: ServerStream[replication.MetadataRequest, replication.MetadataReply],
        call: Call,
    ) -> None:
        table, text = self._reply
        while await stream.read() is not None:
            told = replication.MetadataReply(
                table=table, revision="r", piece=text.encode(), is_last_piece=True
            )
            await stream.write(told)
            await stream.write(replication.MetadataReply(is_end=True))


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("topics", "no json"),
        ("topics", "[]"),
        ("topics", '{"topicConfigTable":{"T":{"readQueueNums":-1,"writeQueueNums":1,"perm":6}}}'),
        (
            "topics",
            '{"topicConfigTable":{"T":{"readQueueNums":1,"writeQueueNums":1,"perm":6,'
            '"topicSysFlag":4294967296}}}',
        ),
        ("groups", '{"subscriptionGroupTable":{"G":{"retryMaxTimes":4294967296}}}'),
        ("offsets", '{"offsets":[["../T","G",0,1,0,0]]}'),
        ("deletions", '{"deletions":{"../T":5}}'),
        ("deletions", '{"deletions":{"T":"5"}}'),
        ("filters", '{"filterDataByTopic":{"../T":{"groupFilterData":{"G":{}}}}}'),
        ("delay_offsets", '{"offsetTable":{"1":-1}}'),
        ("transactions", '{"scanFrom":-1}'),
        ("timer", '{"checkpoint":[1,2]}'),
        ("timer", '{"checkpoint":[1,2,"x",4,5,6,7]}'),
        ("timer", '{"checkpoint":[1,2,3,4,-5,6,7]}'),
        ("timer", '{"checkpoint":[1,2,3,4,5,6,7,8]}'),
        ("timer", '{"checkpoint":[1,2,3,4,5,6,7],"lookBehind":-1}'),
        ("timer", "{}"),
    ],
)
def test_malformed_table_changes_nothing_and_is_logged_once(
    table: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(both: Pair) -> None:
        await until(lambda: both.follower.age_ms() >= 0)
        both.connection = None
        await asyncio.sleep(1)
        tables = both.slave.tables
        before = [each.to_dict() for each in (tables.topics, tables.groups, tables.offsets)]
        scripted = Scripted(table, text)
        host = both.network.host("x")
        async with host.serve([stream(METADATA, scripted.metadata)], Address("x", 1)):
            both.connection = await both.slave.env.network.connect([Address("x", 1)])
            await asyncio.sleep(5)
            both.connection = None
            await asyncio.sleep(1)
        after = [each.to_dict() for each in (tables.topics, tables.groups, tables.offsets)]
        assert after == before
        assert both.slave.store.deletions == {}
        assert both.slave.tables.timer == TimerCheckpoint()
        assert both.follower.age_ms() > 5000

    with caplog.at_level(logging.WARNING):
        run(scenario)
    told = [each.message for each in caplog.records if "differ from the master's" in each.message]
    assert len(told) == 1
    assert table in told[0]


def test_restarted_master_sends_everything_again() -> None:
    async def scenario(both: Pair) -> None:
        both.master.tables.topics.put(TopicConfig("T", 4, 4), now_ms=1)
        both.master.commit(5)
        await until(lambda: same(both))
        both.connection = None
        await asyncio.sleep(1)
        other = await member(both.network, "other")
        other.tables.topics.put(TopicConfig("U", 4, 4), now_ms=1)
        other.commit(7, topic="U")
        address = Address("other", 1)
        async with both.network.host("other").serve(other.service("j").handlers(), address):
            both.connection = await both.slave.env.network.connect([address])
            await until(lambda: both.slave.offset(topic="U") == (7, 0), within_s=SECOND_S)
            assert both.slave.offset() == (None, 0), "its topic is gone"
            both.connection = None

    run(scenario)


def test_timer_progress_of_older_master_is_taken() -> None:
    async def scenario(both: Pair) -> None:
        host = both.network.host("x")
        scripted = Scripted("timer", '{"checkpoint":[1,0,3,4,5,6,7]}')
        async with host.serve([stream(METADATA, scripted.metadata)], Address("x", 1)):
            both.connection = await both.slave.env.network.connect([Address("x", 1)])
            wanted = TimerCheckpoint(1, 0, 3, 4, 5, 6, 7)
            await until(lambda: both.slave.tables.timer == wanted, within_s=5)
            both.connection = None

    run(scenario)
