"""Push consumers against a cluster: failures, order, broadcasting."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ternmq import (
    ClientConfig,
    ConsumeFrom,
    ConsumeStatus,
    Message,
    MessageModel,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    ReconsumeLater,
    StoredMessage,
)
from ternmq_client.instance import ClientInstance
from ternmq_client.internal_producer import InternalProducer
from ternmq_consumer.retry.retry_copies import RetryCopies
from tests.support.sdk_place import Place, eventually

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


async def fill(place: Place, count: int, *, keys: int = 0) -> None:
    """Send messages whose bodies are their numbers; with `keys`, in order per key."""
    async with Producer(place.group, nameserver=place.nameserver) as producer:
        sending = [
            await producer.enqueue(
                Message(
                    place.topic,
                    b"%d" % number,
                    sharding_key=f"key-{number % keys}" if keys else "",
                )
            )
            for number in range(count)
        ]
        await asyncio.gather(*sending)


def test_failed_message_is_redelivered_under_its_topic(place: Place) -> None:
    async def main() -> None:
        await fill(place, 100)
        seen: list[StoredMessage] = []

        def listener(message: StoredMessage) -> ReconsumeLater | None:
            seen.append(message)
            return ReconsumeLater(1) if message.reconsume_times < 2 else None

        async with PushConsumer(
            place.group, place.topic, listener=listener, nameserver=place.nameserver, config=FIRST
        ) as consumer:
            # A send or a return whose answer was late is repeated.
            await eventually(lambda: len({(m.message_id, m.reconsume_times) for m in seen}) == 300)
            await eventually(lambda: consumer.statistics().messages == len(seen))
            returns = sum(message.reconsume_times < 2 for message in seen)
            assert 200 <= consumer.statistics().sent_back <= returns
        # What is stored twice has two records, and each attempt at a record is one delivery.
        assert len({(m.queue, m.queue_offset, m.reconsume_times) for m in seen}) == len(seen)
        assert {message.topic for message in seen} == {place.topic}
        attempts = {(message.message_id, message.reconsume_times) for message in seen}
        assert Counter(times for _, times in attempts) == {0: 100, 1: 100, 2: 100}
        assert {message.queue.topic for message in seen if message.reconsume_times} == {
            f"%RETRY%{place.group}"
        }
        assert len({message.message_id for message in seen}) == 100

    place.run(main)


def test_abandoned_message_becomes_a_dead_letter(place: Place) -> None:
    async def main() -> None:
        await fill(place, 10)
        calls: list[StoredMessage] = []
        dead: list[StoredMessage] = []

        def listener(message: StoredMessage) -> ConsumeStatus:
            calls.append(message)
            return ConsumeStatus.DEAD_LETTER if message.body == b"7" else ConsumeStatus.SUCCESS

        async with (
            PushConsumer(
                place.group,
                place.topic,
                listener=listener,
                nameserver=place.nameserver,
                config=FIRST,
            ),
            PushConsumer(
                f"{place.group}_dead",
                f"%DLQ%{place.group}",
                listener=dead.append,
                nameserver=place.nameserver,
                config=FIRST,
            ),
        ):
            await eventually(lambda: bool(dead))
        assert [message.body for message in dead] == [b"7"]
        assert len(calls) == 10

    place.run(main)


def test_retry_without_original_record_is_redelivered_as_a_copy(place: Place) -> None:
    async def main() -> None:
        await fill(place, 1)
        seen: list[StoredMessage] = []

        async with (
            PushConsumer(
                place.group,
                place.topic,
                listener=seen.append,
                nameserver=place.nameserver,
                config=FIRST,
            ),
            ClientInstance(ClientConfig(nameservers=(place.nameserver,))) as client,
        ):
            await eventually(lambda: len(seen) == 1)
            await client.routes.route(place.topic)
            copies = RetryCopies(
                InternalProducer(client), group=place.group, timeout_s=30, retries_max=-1
            )
            assert await copies.send(seen[0], 1)
            await eventually(lambda: len(seen) == 2)
        first, again = seen
        assert (again.topic, again.body, again.reconsume_times) == (place.topic, first.body, 1)
        assert again.message_id == first.message_id

    place.run(main)


def test_two_orderly_members_keep_the_order_while_one_joins_and_leaves(place: Place) -> None:
    async def main() -> None:
        await fill(place, 2000, keys=16)
        done: list[StoredMessage] = []
        failed: set[bytes] = set()

        def listener(message: StoredMessage) -> ReconsumeLater | None:
            if int(message.body) % 500 == 77 and message.body not in failed:
                failed.add(message.body)
                return ReconsumeLater(suspend_s=0.05)
            done.append(message)
            return None

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True)

        def member() -> PushConsumer:
            return PushConsumer(
                place.group,
                place.topic,
                listener=listener,
                nameserver=place.nameserver,
                config=config,
            )

        async with member() as first:
            await first.assigned()
            async with member() as second:
                await second.assigned()
                await eventually(lambda: len({message.body for message in done}) == 2000)
        assert len(failed) == 4
        for key in {message.sharding_key for message in done}:
            bodies = dict.fromkeys(
                int(message.body) for message in done if message.sharding_key == key
            )
            assert list(bodies) == sorted(bodies)

    place.run(main)


def test_broadcasting_members_get_every_message_and_resume_where_they_were(
    place: Place, tmp_path: Path
) -> None:
    async def main() -> None:
        await fill(place, 100)
        seen: dict[str, Counter[bytes]] = {"a": Counter(), "b": Counter()}

        def member(name: str) -> PushConsumer:
            async def listener(batch: Sequence[StoredMessage]) -> None:
                seen[name].update(message.body for message in batch)

            return PushConsumer(
                place.group,
                place.topic,
                batch_listener=listener,
                client=ClientConfig(
                    nameservers=(place.nameserver,), instance_name=f"{place.group}-{name}"
                ),
                config=PushConsumerConfig(
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                    message_model=MessageModel.BROADCASTING,
                    offsets_folder=tmp_path,
                ),
            )

        async with member("a"), member("b"):
            await eventually(lambda: len(seen["a"]) == len(seen["b"]) == 100)
        await fill(place, 10)
        async with member("a"):
            await eventually(lambda: seen["a"].total() == 110)
        assert seen["a"][b"3"] == 2
        assert seen["b"].total() == 100

    place.run(main)


def test_columns_listener_gets_every_message(place: Place) -> None:
    pytest.importorskip("pyarrow")

    async def main() -> None:
        await fill(place, 100)
        seen: Counter[bytes] = Counter()

        async def listener(batch: Any) -> None:
            seen.update(batch.column("body").to_pylist())

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with PushConsumer(
            place.group,
            place.topic,
            columns_listener=listener,
            nameserver=place.nameserver,
            config=config,
        ):
            await eventually(lambda: len(seen) == 100)
        assert set(seen.values()) == {1}

    place.run(main)
