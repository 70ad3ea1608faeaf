"""How late flights come to the Spark demo, whatever the speed of Spark and of the sender."""

from bisect import bisect
from datetime import datetime

import pytest

pytest.importorskip("pyspark")

from flights import FLIGHTS, TOPIC, message_of
from spark_demo import OFFSETS_PER_TRIGGER, QUEUES, lines
from summaries import WATERMARK, hour_of, in_order
from ternmq import MessageQueue
from ternmq_model.offsets import QueueOffset
from ternmq_pipeline.options.source_options import TriggerLimits
from ternmq_pipeline.planning.admission import TriggerState, admit
from ternmq_producer.queue_selection.topic_publish_info import TopicPublishInfo
from tests.support.planning import snapshot, unasked

LIMITS = TriggerLimits(offsets_max=OFFSETS_PER_TRIGGER)


@pytest.fixture(scope="module")
def sent() -> dict[MessageQueue, list[tuple[int, datetime]]]:
    """What each queue gets: the places of its flights among all, and their hours."""
    queues = [MessageQueue(TOPIC, "broker", number) for number in range(QUEUES)]
    info = TopicPublishInfo(TOPIC, queues, 0)
    found: dict[MessageQueue, list[tuple[int, datetime]]] = {queue: [] for queue in queues}
    for place, row in enumerate(in_order(lines())):
        key = message_of(row).sharding_key
        index = info.index_of_key(key) if key else place % QUEUES
        found[queues[index]].append((place, hour_of(row)))
    return found


@pytest.mark.parametrize("sent_per_batch", [FLIGHTS, 200_000, 120_000, 50_000])
def test_flights_are_never_late_however_far_spark_is_behind(
    sent: dict[MessageQueue, list[tuple[int, datetime]]], sent_per_batch: int
) -> None:
    place = dict.fromkeys(sent, QueueOffset(0))
    latest = min(flights[0][1] for flights in sent.values())
    batch = 0
    while any(place[queue] < len(flights) for queue, flights in sent.items()):
        batch += 1
        ends = {
            queue: (0, bisect(flights, batch * sent_per_batch, key=lambda flight: flight[0]))
            for queue, flights in sent.items()
        }
        end = admit(
            place, snapshot(ends), LIMITS, trigger=TriggerState(turn=batch), measure=unasked
        ).end
        hours = [hour for queue in sent for _, hour in sent[queue][place[queue] : end[queue]]]
        assert min(hours) > latest - WATERMARK
        latest, place = max(latest, *hours), end
