"""The rules of epochs and cuts, over every order in which things can happen, up to bounds.

`tests/support/epoch_model.py` says what can happen and what must never be. Here all of it is tried,
then longer stories are drawn; and rules that are a little worse are shown to be found out.
"""

import random

import pytest

from ternmq_broker.replication.role import start_policy
from ternmq_broker.state import epochs
from ternmq_model.offsets import PhysicalOffset
from tests.support.epoch_model import faults, settle, steps, unsettled
from tests.support.epoch_world import Budget, Setup, World, first_world
from tests.support.examples import IS_SOAK, points, seeds

SETTLED_OF = 1 if IS_SOAK else 40
"""One world of so many is let settle: that takes as long as twenty steps."""

TWO, THREE = Setup(), Setup(members=3)
BOUNDS = [
    pytest.param(TWO, Budget(crashes=2, cuts=0, promotions=2), id="crashes"),
    pytest.param(TWO, Budget(crashes=1, cuts=1, promotions=2), id="partitions"),
    pytest.param(TWO, Budget(crashes=1, cuts=0, stops=1, promotions=2), id="clean stops"),
    pytest.param(TWO, Budget(crashes=1, cuts=0, destroyed=1), id="a destroyed disk"),
    pytest.param(TWO, Budget(crashes=1, cuts=1, forces=1), id="force"),
    pytest.param(
        TWO._replace(is_flush_sync=False), Budget(crashes=1, cuts=1), id="asynchronous flush"
    ),
    pytest.param(TWO._replace(needed=0), Budget(crashes=1, cuts=1), id="asynchronous master"),
    pytest.param(TWO._replace(nameservers=2), Budget(1, crashes=1, cuts=1), id="two NameServers"),
    pytest.param(THREE, Budget(2, crashes=1, cuts=0), id="three members"),
    pytest.param(THREE._replace(needed=2), Budget(1, crashes=1, cuts=1), id="all three needed"),
    pytest.param(TWO, Budget(crashes=1, cuts=1, strangers=1), id="a stranger"),
    pytest.param(TWO, Budget(1, crashes=0, cuts=1, strangers=2), id="strangers in a partition"),
    pytest.param(THREE, Budget(1, crashes=0, cuts=1, strangers=1), id="a stranger at three"),
]
DEEP = [
    pytest.param(TWO, Budget(2, crashes=2, cuts=1, promotions=2), id="crashes"),
    pytest.param(TWO, Budget(3, crashes=1, cuts=2, promotions=2), id="partitions"),
    pytest.param(TWO, Budget(crashes=2, cuts=1, stops=1), id="clean stops"),
    pytest.param(TWO, Budget(crashes=1, cuts=1, destroyed=1, promotions=2), id="a destroyed disk"),
    pytest.param(TWO, Budget(crashes=2, cuts=1, forces=1), id="force"),
    pytest.param(
        TWO._replace(is_flush_sync=False), Budget(crashes=2, cuts=1), id="asynchronous flush"
    ),
    pytest.param(TWO._replace(nameservers=2), Budget(2, crashes=1, cuts=2), id="two NameServers"),
    pytest.param(THREE, Budget(2, crashes=1, cuts=1), id="three members"),
    pytest.param(THREE._replace(needed=2), Budget(2, crashes=1, cuts=1), id="all three needed"),
    pytest.param(TWO, Budget(1, crashes=1, cuts=1, promotions=2, strangers=1), id="strangers"),
]


def explore(setup: Setup, budget: Budget, *, worlds_max: int = 3_000_000) -> tuple[str, list[str]]:
    """Return the first fault and the steps to it, by the fewest steps; "" for none."""
    first = first_world(setup, budget)
    came_by: dict[World, tuple[str, World] | None] = {first: None}
    layer = [first]
    while layer:
        following: list[World] = []
        for world in layer:
            for label, after in steps(world):
                if after in came_by:
                    continue
                came_by[after] = (label, world)
                fault = faults(after)
                if not fault and len(came_by) % SETTLED_OF == 0:
                    fault = unsettled(settle(after))
                if fault:
                    return fault, _way_to(came_by, after)
                following.append(after)
        assert len(came_by) < worlds_max, "the bounds are too wide"
        layer = following
    return "", []


def _way_to(came_by: dict[World, tuple[str, World] | None], world: World) -> list[str]:
    way: list[str] = []
    while (came := came_by[world]) is not None:
        label, world = came
        way.append(label)
    return way[::-1]


@pytest.mark.parametrize(("setup", "budget"), DEEP if IS_SOAK else points(BOUNDS))
def test_event_orders_never_lose_acknowledged_data_or_fork_logs(
    setup: Setup, budget: Budget
) -> None:
    assert explore(setup, budget) == ("", [])


@pytest.mark.parametrize("setup", [TWO, TWO._replace(nameservers=2), THREE], ids=str)
@pytest.mark.parametrize("is_flush_sync", [True, False])
@pytest.mark.parametrize("strangers", [0, 3])
def test_long_epoch_scenarios_end_well(
    setup: Setup, strangers: int, *, is_flush_sync: bool
) -> None:
    budget = Budget(12, crashes=6, stops=3, cuts=6, promotions=4, forces=1, strangers=strangers)
    for seed in seeds(60, soak=20_000):
        chance = random.Random(seed)
        world = first_world(setup._replace(is_flush_sync=is_flush_sync), budget)
        way: list[str] = []
        for _ in range(120):
            possible = list(steps(world))
            if not possible:
                break
            label, world = chance.choice(possible)
            way.append(label)
            assert not faults(world), (seed, way)
        assert not unsettled(settle(world)), (seed, way)


def all_promotions_alike(highest: int, _broker_id: int) -> int:
    return (highest // 1000 + 1) * 1000


def go_on_without_a_new_epoch(highest: int) -> int:
    return max(highest, 1)


def only_the_bytes_count(entries: epochs.Epochs, end: PhysicalOffset) -> int:
    return epochs.newest(epochs.cut_to(entries, end))


def nobody_is_better(_own: epochs.MemberLog, _others: object) -> str:
    return ""


def cut_a_little_more(log: epochs.MemberLog, other: epochs.MemberLog) -> tuple[PhysicalOffset, ...]:
    return tuple(PhysicalOffset(at - 1) for at in common_points(log, other) if at > 1)


common_points = epochs.common_points


@pytest.mark.parametrize(
    ("module", "name", "worse", "setup", "budget"),
    [
        (
            epochs,
            "number_of_promotion",
            all_promotions_alike,
            THREE,
            Budget(1, 1, promotions=2),
        ),
        (epochs, "common_points", cut_a_little_more, TWO, Budget(2, crashes=1, cuts=1)),
        (start_policy, "why_not_promote", nobody_is_better, THREE, Budget(1, crashes=1, cuts=0)),
        (
            start_policy,
            "number_after_restart",
            go_on_without_a_new_epoch,
            TWO,
            Budget(2, crashes=1, cuts=0),
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_worse_epoch_rule_is_detected(
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    worse: object,
    setup: Setup,
    budget: Budget,
) -> None:
    monkeypatch.setattr(module, name, worse)
    try:
        fault, way = explore(setup, budget)
    except AssertionError as error:
        fault, way = str(error), ["a rule's own assertion"]
    assert fault
    assert way


STORY = (
    "start 0; append 0; start 1; connect 1 to 0; replicate 1; lose power 0; start 0; append 0; "
    "part (0, 1); promote 1; register 1; start 2; connect 2 to 0; become slave 0; "
    "connect 2 to 1; replicate 2; ack 2; promote 0"
)
"""What all orders of events at three members brought to light: 1 had confirmed what it found, and 0
has a record of a restart that 1 had deposed already."""


def test_reached_leadership_decides_which_log_is_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tell() -> World:
        world = first_world(THREE, Budget(2, crashes=1, cuts=1, promotions=2))
        for label in STORY.split("; "):
            world = dict(steps(world))[label]
        return world

    with pytest.raises(KeyError, match="promote 0"):
        tell()
    monkeypatch.setattr(epochs, "newest_reached", only_the_bytes_count)
    assert tell().top[1] == 0
