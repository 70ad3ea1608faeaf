"""Which queue a message goes to."""

from ternmq_model.properties import java_hash
from ternmq_model.queue import MessageQueue
from ternmq_producer.queue_selection.topic_publish_info import TopicPublishInfo

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(3)]


def test_round_robin_begins_where_told_and_visits_every_queue() -> None:
    info = TopicPublishInfo("t", QUEUES, 1_000_004)
    begin = 1_000_004 % 6
    assert [info.next() for _ in range(7)] == [(begin + each) % 6 for each in range(7)]


def test_unfit_queues_are_skipped_unless_all_are() -> None:
    info = TopicPublishInfo("t", QUEUES, 0)
    picked = {info.next_where(lambda queue: queue.broker_name == "b") for _ in range(6)}
    assert picked == {3, 4, 5}
    assert info.next_where(lambda _: False) in range(6)


def test_skipping_advances_the_round_robin() -> None:
    info = TopicPublishInfo("t", QUEUES, 4)
    assert info.skip(9) == 4
    assert info.next() == 1


def test_key_maps_to_the_queue_java_would_choose() -> None:
    info = TopicPublishInfo("t", QUEUES, 3)
    for key in ("N14228", "a", "polygenelubricants", "ключ"):  # the third has the hash −2^31
        assert info.index_of_key(key) == abs(java_hash(key)) % 6
        assert info.index_of_key(key) == abs(java_hash(key)) % 6
    assert java_hash("polygenelubricants") == -(1 << 31)


def test_memory_for_keys_is_bounded() -> None:
    info = TopicPublishInfo("t", QUEUES, 0)
    for number in range(70_000):
        info.index_of_key(str(number))
    assert len(info._index_by_key) <= 65_536  # pyright: ignore[reportPrivateUsage]
    assert info.index_of_key("5") == abs(java_hash("5")) % 6
