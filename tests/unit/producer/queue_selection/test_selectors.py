from collections import Counter
from random import Random

import pytest

from ternmq_model.errors import UsageError
from ternmq_model.message import Message
from ternmq_model.properties import java_hash
from ternmq_model.queue import MessageQueue
from ternmq_producer.queue_selection.selectors import (
    ByHash,
    ByKey,
    ByMachineRoom,
    ByRandom,
    RoundRobin,
    keeps_order,
)

QUEUES = [
    MessageQueue("T", broker, number)
    for broker in ("east-1", "east-2", "west-1")
    for number in (0, 1)
]


def message(**fields: object) -> Message:
    return Message("T", b"", **fields)  # type: ignore[arg-type]


def test_round_robin_takes_every_queue_in_turn() -> None:
    selector = RoundRobin()
    assert [selector(QUEUES, message()) for _ in range(7)] == [*QUEUES, QUEUES[0]]
    assert not keeps_order(selector)


def test_random_reaches_every_queue() -> None:
    selector = ByRandom(Random(1))
    assert len(Counter(selector(QUEUES, message()) for _ in range(200))) == len(QUEUES)
    assert not keeps_order(selector)


@pytest.mark.parametrize("value", ["N14228", "", 7, -7, "polygenelubricants"])
def test_hash_selects_the_queue_rocketmq_would(value: str | int) -> None:
    code = value if isinstance(value, int) else java_hash(value)
    assert ByHash(value)(QUEUES, message()) == QUEUES[abs(code) % 6]
    assert keeps_order(ByHash(value))


def test_key_selects_one_queue() -> None:
    expected = QUEUES[abs(java_hash("k")) % 6]
    assert ByKey()(QUEUES, message(sharding_key="k", keys=["other"])) == expected
    assert ByKey()(QUEUES, message(keys=["k", "other"])) == expected
    assert ByKey(lambda one: one.tags)(QUEUES, message(tags="k")) == expected
    assert keeps_order(ByKey())
    with pytest.raises(UsageError, match="no key"):
        ByKey()(QUEUES, message())


def test_machine_room_is_a_common_prefix_of_broker_names() -> None:
    east = ByMachineRoom(["east-"])
    assert {east(QUEUES, message()).broker_name for _ in range(8)} == {"east-1", "east-2"}
    assert not keeps_order(east)
    assert ByMachineRoom(["north-"])(QUEUES, message()) == QUEUES[0]
    with pytest.raises(UsageError, match="north-"):
        ByMachineRoom(["north-"], elsewhere=False)(QUEUES, message())
    for wrong in ("east-", [], [""]):
        with pytest.raises(UsageError):
            ByMachineRoom(wrong)


def test_plain_function_keeps_order() -> None:
    assert keeps_order(lambda queues, _: queues[0])
