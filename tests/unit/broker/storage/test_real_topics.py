import pytest

from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_model.data_version import DataVersion
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import TopicConfig
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

REIGN_START = PhysicalOffset(1_000)


@pytest.mark.parametrize(
    ("topic", "stored_at", "queues"),
    [
        ("known", 10, 2),
        ("made-just-before", 10, 6),
        ("made-just-before", 1_000, None),
        ("deleted", 499, None),
        ("deleted-and-made-again", 500, 6),
    ],
)
def test_topic_known_only_from_an_earlier_leadership_is_recreated(
    topic: str, stored_at: int, queues: int | None
) -> None:
    async def main() -> None:
        table, told = TopicTable(DataVersion(1)), list[None]()
        table.put(TopicConfig("known", 2, 2), now_ms=1)
        real = RealTopics(
            table,
            deletions=lambda: {
                "deleted": PhysicalOffset(500),
                "deleted-and-made-again": PhysicalOffset(500),
            },
            epoch_start=REIGN_START,
            clock=VirtualClock(),
            on_made=lambda: told.append(None),
        )
        found = real.find(topic, 5, PhysicalOffset(stored_at))
        assert (found and found.write_queues) == queues
        assert table.get(topic) == found
        assert len(told) == (queues == 6)

    run_in_virtual_time(main())
