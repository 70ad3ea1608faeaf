"""The blocking pull consumer, over gRPC on this machine."""

import inspect
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from ternmq_client.blocking_client import BlockingClient
from ternmq_consumer.pull.blocking_pull_consumer import BlockingPullConsumer
from ternmq_model.errors import TopicNotFound
from ternmq_model.queue import MessageQueue
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC


@contextmanager
def grpc_toys() -> Generator[str, None, None]:
    cluster = ToyCluster(queues=2, is_real=True)
    for number in range(200):
        cluster.first.append(number % 2, b"body %d" % number)
    with BlockingClient(cluster):
        yield cluster.nameserver


def test_script_reads_a_topic_without_an_event_loop() -> None:
    with grpc_toys() as nameserver, BlockingPullConsumer("g", nameserver=nameserver) as consumer:
        queues = consumer.queues(TOPIC)
        consumer.assign(queues)
        assert consumer.assignment() == queues
        bodies: set[bytes] = set()
        while batch := consumer.poll(timeout_s=0.5 if len(bodies) == 200 else 100):
            bodies |= {message.body for message in batch}
        assert bodies == {b"body %d" % number for number in range(200)}
        assert [consumer.position(queue) for queue in queues] == [100, 100]
        assert consumer.committed(queues[0]) == 0  # where the group began
        assert consumer.commit()
        assert consumer.committed(queues[0]) == 100
        consumer.seek_to_begin()
        assert consumer.position(queues[1]) == consumer.begin_offsets(queues)[queues[1]] == 0
        consumer.seek_to_end(queues[1])
        assert consumer.position(queues[1]) == consumer.end_offsets(queues)[queues[1]] == 100
        consumer.seek(queues[0], 99)
        assert consumer.poll(timeout_s=100)[0].queue_offset == 99
        with pytest.raises(TopicNotFound):
            consumer.queues("no_such")


def test_seeks_of_a_blocking_consumer_show_no_awaitable() -> None:
    consumer = BlockingPullConsumer
    seeks = (consumer.seek, consumer.seek_to_begin, consumer.seek_to_end, consumer.seek_to_time)
    for seek in seeks:
        assert inspect.signature(seek).return_annotation is None


def read(consumer: BlockingPullConsumer, count: int) -> list[int]:
    """Return the offsets of the next messages."""
    found: list[int] = []
    while len(found) < count:
        batch = consumer.poll(timeout_s=100)
        assert batch, f"only {len(found)} messages came"
        found += [message.queue_offset for message in batch]
    return found


def test_script_shares_a_topic_and_its_callbacks_may_use_the_consumer() -> None:
    told: list[tuple[str, int, bool]] = []
    with grpc_toys() as nameserver, BlockingPullConsumer("g", nameserver=nameserver) as consumer:
        queues = consumer.queues(TOPIC)

        def on_assigned(given: list[MessageQueue]) -> None:
            told.append(("assigned", len(given), consumer.assignment() == queues))
            consumer.seek(queues[0], 95)

        def on_revoked(taken: list[MessageQueue]) -> None:
            told.append(("revoked", len(taken), consumer.commit()))

        consumer.subscribe(TOPIC, on_assigned=on_assigned, on_revoked=on_revoked)
        consumer.assigned()
        consumer.pause(queues[1])
        assert consumer.paused() == [queues[1]]
        assert read(consumer, 5) == [*range(95, 100)]
        consumer.resume(queues[1])
        assert read(consumer, 100) == [*range(100)]
        consumer.seek_to_time(0, queues[1])
        assert consumer.offsets_for_times({queues[0]: 2}) == {queues[0]: 100}
        consumer.unsubscribe()
        assert consumer.committed(queues[0]) == 100
        assert consumer.committed(queues[1]) == 0
    assert told == [("assigned", 2, True), ("revoked", 2, True)]
