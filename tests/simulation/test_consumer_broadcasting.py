"""Consumers that broadcast: every member has every message, and each knows how far it is."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, MessageModel, OffsetsKept, PushConsumerConfig
from ternmq_consumer.offsets.local_offset_store import offsets_path, own_group
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import StoreError
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC


class Scene:
    """A cluster with one topic, and members that broadcast."""

    def __init__(self, cluster: ToyCluster, folder: Path, kept: OffsetsKept) -> None:
        self.cluster = cluster
        self.folder = folder
        self.config = PushConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET,
            message_model=MessageModel.BROADCASTING,
            offsets_kept=kept,
            offsets_folder=folder,
        )

    def member(
        self, host: str, listener: Callable[[StoredMessage], Any], **changes: Any
    ) -> PushConsumer:
        config, client_config = replace(self.config, **changes), ClientConfig(host_name=host)
        return self.cluster.consumer(host, config, listener=listener, client=client_config)


def play(
    test: Callable[[Scene], Any], folder: Path, kept: OffsetsKept = OffsetsKept.LOCALLY
) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=2) as cluster:
            await test(Scene(cluster, folder, kept))

    run_in_virtual_time(main())


def test_every_broadcasting_member_takes_every_queue_and_message(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        count = scene.cluster.fill(50)
        first: list[StoredMessage] = []
        second: list[StoredMessage] = []
        async with scene.member("a", first.append) as one, scene.member("b", second.append) as two:
            await until(lambda: len(first) == len(second) == count)
            assert one.assignment() == two.assignment() == scene.cluster.queues
        # Nothing of it is the group's at the brokers.
        assert not scene.cluster.first.groups.offsets.groups()

    play(test, tmp_path)


@pytest.mark.parametrize("kept", OffsetsKept)
def test_returning_member_resumes_where_it_was(tmp_path: Path, kept: OffsetsKept) -> None:
    async def test(scene: Scene) -> None:
        before = scene.cluster.fill(20)
        seen: list[StoredMessage] = []
        async with scene.member("a", seen.append):
            await until(lambda: len(seen) == before)
        missed = scene.cluster.fill(5)
        seen.clear()
        async with scene.member("a", seen.append):
            await until(lambda: len(seen) == missed)
            await asyncio.sleep(10)
        assert len(seen) == missed
        # Another member, who never was here, begins at the beginning.
        others: list[StoredMessage] = []
        async with scene.member("b", others.append):
            await until(lambda: len(others) == before + missed)

    play(test, tmp_path, kept)


def test_offsets_at_brokers_are_under_the_members_own_name(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.cluster.fill(7)
        seen: list[StoredMessage] = []
        async with scene.member("a", seen.append):
            await until(lambda: len(seen) == 28)
        offsets, own = scene.cluster.first.groups.offsets, own_group("g", "a@DEFAULT")
        assert offsets.groups() == {own}
        assert offsets.topics_of(own) == {TOPIC: {0: 7, 1: 7}}
        assert not list(tmp_path.glob("*"))  # noqa: ASYNC240 - a test may block

    play(test, tmp_path, OffsetsKept.AT_BROKERS)


def test_killed_member_repeats_messages_it_had_not_saved(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        count = scene.cluster.fill(20)
        seen: list[StoredMessage] = []

        async def run() -> None:
            async with scene.member("a", seen.append):
                await until(lambda: len(seen) == count)
                await asyncio.sleep(6)  # kept, after 5 s
                scene.cluster.fill(10)
                await until(lambda: len(seen) == count + 40)
                path = offsets_path(scene.folder, "a@DEFAULT", "g")
                kept.append(path.read_bytes())

        kept: list[bytes] = []
        await run()
        # As a crash leaves it: what the last seconds brought was not written.
        offsets_path(scene.folder, "a@DEFAULT", "g").write_bytes(kept[0])
        seen.clear()
        async with scene.member("a", seen.append):
            await until(lambda: len(seen) == 40)
        assert {message.queue_offset for message in seen} == set(range(20, 30))

    play(test, tmp_path)


def test_broadcast_failures_are_counted_and_not_redelivered(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        count = scene.cluster.fill(10)
        seen: list[StoredMessage] = []

        def listener(message: StoredMessage) -> bool:
            seen.append(message)
            return message.queue_offset != 3

        async with scene.member("a", listener) as consumer:
            await until(lambda: len(seen) == count)
            await asyncio.sleep(60)
            assert consumer.statistics().failures == 4
            assert consumer.statistics().sent_back == 0
            assert consumer.statistics().in_hand_messages == 0
        assert len(seen) == count
        assert not scene.cluster.first.groups.requests

    play(test, tmp_path)


def test_hanging_call_delays_nothing_beyond_the_timeout(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.cluster.fill(10)

        async def listener(message: StoredMessage) -> None:
            await asyncio.sleep(100_000 if message.queue_offset == 3 else 0)

        async with scene.member("a", listener, consume_timeout_s=60, close_wait_s=1) as consumer:
            await until(lambda: consumer.statistics().messages == 40)
            assert consumer.statistics().timed_out == 4

    play(test, tmp_path)


def test_orderly_failure_is_retried_until_its_limit(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.cluster.fill(5)
        seen: list[StoredMessage] = []

        def listener(message: StoredMessage) -> bool:
            seen.append(message)
            return message.queue_offset != 2

        async with scene.member("a", listener, order_per_queue=True, retries_max=2):
            await until(lambda: len(seen) == 4 * 7)
        for queue in scene.cluster.queues:
            offsets = [message.queue_offset for message in seen if message.queue == queue]
            assert offsets == [0, 1, 2, 2, 2, 3, 4]

    play(test, tmp_path)


def test_unreadable_offsets_file_is_an_error_and_not_a_beginning(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        path = offsets_path(scene.folder, "a@DEFAULT", "g")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"{torn")
        with pytest.raises(StoreError, match="damaged state file"):
            async with scene.member("a", print):
                raise AssertionError("was entered")

    play(test, tmp_path)


def test_recreated_topic_is_consumed_from_its_beginning(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        before = scene.cluster.fill(20)
        seen: list[StoredMessage] = []
        async with scene.member("a", seen.append):
            await until(lambda: len(seen) == before)
            for broker in scene.cluster.brokers.values():
                broker.delete_topic()
            await asyncio.sleep(30)
            for broker in scene.cluster.brokers.values():
                broker.topics[TOPIC] = 2
            again = scene.cluster.fill(20)
            await until(lambda: len(seen) == before + again)

    play(test, tmp_path)
