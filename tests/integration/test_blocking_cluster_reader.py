"""What Spark's driver asks of a cluster, against a broker and a NameServer of another process."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_model.errors import TransportError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.cluster.blocking_reader import BlockingClusterReader, open_cluster_reader
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import ReadOptions, read_options
from ternmq_pipeline.options.topics import Assign, Subscribe, SubscribePattern
from tests.support.processes import ServiceProcess, running_dev
from tests.support.spark_data import delete_topic, fill, make_topic


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


@pytest.fixture
def view(dev: ServiceProcess) -> Generator[BlockingClusterReader]:
    with open_cluster_reader(view_options(dev.nameserver)) as opened:
        yield opened


def view_options(nameserver: str, **others: str) -> ReadOptions:
    return read_options({"nameserver": nameserver, "subscribe": "Unused", **others})


def committed(nameserver: str, group: str) -> dict[MessageQueue, int]:
    async def ask() -> dict[MessageQueue, int]:
        async with AdminClient(nameserver=nameserver) as admin:
            progress = await admin.describe_group(group)
            return {each.queue: each.committed_offset for each in progress.progress}

    return shared_loop_thread().run(ask())


def test_snapshot_covers_every_queue_of_a_topic(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    fill(dev.nameserver, "ViewSnapshot", 10, queues=3)
    found = view.snapshot(Subscribe(("ViewSnapshot",)))
    assert sorted(found.ranges) == [
        MessageQueue("ViewSnapshot", dev.broker_name, number) for number in range(3)
    ]
    assert {there.begin for there in found.ranges.values()} == {0}
    assert sum(there.end for there in found.ranges.values()) == 10
    assert found.brokers == {dev.broker_name}
    assert (found.missing, found.answered_by_slave) == (frozenset(), frozenset())
    assert found.stores.keys() == {dev.broker_name}
    assert all(found.stores.values())


def test_new_queues_and_topics_are_seen_at_once(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    make_topic(dev.nameserver, "ViewGrows", queues=1)
    choice = SubscribePattern("ViewGrow.*")
    assert len(view.snapshot(choice).ranges) == 1
    make_topic(dev.nameserver, "ViewGrows", queues=2)
    make_topic(dev.nameserver, "ViewGrowsToo", queues=1)
    assert len(view.snapshot(choice).ranges) == 3


def test_pattern_for_everything_matches_user_topics_only(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    make_topic(dev.nameserver, "ViewUser", queues=1)
    make_topic(dev.nameserver, "%RETRY%ViewGroup", queues=1)
    topics = {queue.topic for queue in view.snapshot(SubscribePattern(".*")).ranges}
    assert "ViewUser" in topics
    assert all(topic.startswith("View") for topic in topics), topics
    by_name = view.snapshot(Subscribe(("%RETRY%ViewGroup",)))
    assert len(by_name.ranges) == 1


def test_missing_queues_and_topics_are_named(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    make_topic(dev.nameserver, "ViewPart", queues=1)
    there, absent = (MessageQueue("ViewPart", dev.broker_name, number) for number in (0, 7))
    found = view.snapshot(Assign((there, absent)))
    assert list(found.ranges) == [there]
    assert found.missing == {f"queue {absent}"}
    assert view.snapshot(Subscribe(("ViewNowhere",))).missing == {"topic ViewNowhere"}


def test_vanished_queue_is_looked_up_again_before_it_is_given_up(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    make_topic(dev.nameserver, "ViewGone", queues=1)
    choice = SubscribePattern("ViewGone")
    queues = view.snapshot(choice).ranges.keys()
    delete_topic(dev.nameserver, "ViewGone")
    assert not view.snapshot(choice, expected=queues).ranges
    # It is known to be gone now, and nobody waits for it again.
    assert not view.snapshot(choice, expected=queues).ranges


def test_store_id_survives_restarts_and_changes_with_an_emptied_directory(
    tmp_path: Path,
) -> None:
    def store_after(*, port_nameserver: int = 0) -> tuple[str, int]:
        with running_dev(tmp_path, port_nameserver=port_nameserver) as dev:
            fill(dev.nameserver, "ViewStore", 3, queues=1)
            with open_cluster_reader(view_options(dev.nameserver)) as view:
                found = view.snapshot(Subscribe(("ViewStore",)))
            dev.kill()
        return found.stores[dev.broker_name], int(dev.nameserver.rpartition(":")[2])

    store, port = store_after()
    assert store_after(port_nameserver=port) == (store, port)
    shutil.rmtree(tmp_path / "data")
    assert store_after(port_nameserver=port)[0] != store


def test_offsets_by_time_are_the_end_when_all_messages_are_older(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    fill(dev.nameserver, "ViewTimes", 6, queues=2)
    queues = sorted(view.snapshot(Subscribe(("ViewTimes",))).ranges)
    first, last = queues
    assert view.offsets_at({first: 0, last: 1 << 50}) == {first: 0, last: 3}


def test_ranges_are_measured_up_to_a_byte_limit(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    fill(dev.nameserver, "ViewBytes", 10, queues=1)
    queue = MessageQueue("ViewBytes", dev.broker_name, 0)
    view.snapshot(Subscribe(("ViewBytes",)))
    whole = OffsetRange(queue, QueueOffset(0), QueueOffset(10))
    ones = [
        OffsetRange(queue, QueueOffset(number), QueueOffset(number + 1)) for number in range(10)
    ]
    sizes = [one.bytes for one in view.measure([(one, 0) for one in ones])]
    assert min(sizes) > len("message-000000")
    asked = [(whole, 0), (whole, 1), (whole, sizes[0] + 1)]
    assert view.measure(asked) == [(10, sum(sizes)), (1, sizes[0]), (2, sizes[0] + sizes[1])]


def test_offsets_are_committed_and_follow_a_reset(
    dev: ServiceProcess, view: BlockingClusterReader
) -> None:
    fill(dev.nameserver, "ViewCommits", 6, queues=1)
    queue = MessageQueue("ViewCommits", dev.broker_name, 0)
    view.commit("view-group", {queue: QueueOffset(4)})
    assert committed(dev.nameserver, "view-group")[queue] == 4

    async def reset() -> None:
        async with AdminClient(nameserver=dev.nameserver) as admin:
            await admin.reset_offsets("view-group", "ViewCommits", offset=1)

    shared_loop_thread().run(reset())
    view.commit("view-group", {queue: QueueOffset(5)})
    assert committed(dev.nameserver, "view-group")[queue] == 5
    view.commit("view-group", {queue: QueueOffset(2)})
    assert committed(dev.nameserver, "view-group")[queue] == 5


def test_absent_cluster_is_an_error_that_names_it_and_the_option() -> None:
    with (
        open_cluster_reader(view_options("127.0.0.1:1", retryTimeout="1s")) as view,
        pytest.raises(TransportError, match=r"127\.0\.0\.1:1.*; for \d+ s \(retryTimeout\)"),
    ):
        view.snapshot(Subscribe(("TopicA",)))
