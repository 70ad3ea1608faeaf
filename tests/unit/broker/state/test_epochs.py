import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.state.epochs import (
    PROBE_BYTES,
    Epoch,
    Epochs,
    FollowFrom,
    FollowRefused,
    MasterDeposed,
    MemberLog,
    StartEmptyLog,
    TruncateTo,
    begin,
    common_points,
    cut_to,
    ended_at,
    follow_decision,
    newest,
    newest_reached,
    number_after_restart,
    number_of_promotion,
    probe,
    why_not,
)
from ternmq_model.epochs import EPOCH_MAX, EPOCH_STORED_MAX, doubt_of
from ternmq_model.errors import RefusedError
from ternmq_model.offsets import PhysicalOffset


def epochs(*entries: tuple[int, int]) -> Epochs:
    return tuple(Epoch(number, PhysicalOffset(start)) for number, start in entries)


def log(end: int, *entries: tuple[int, int], start: int = 0, highest: int = 0) -> MemberLog:
    """A log of store "s"."""
    return MemberLog(epochs(*entries), PhysicalOffset(start), PhysicalOffset(end), "s", highest)


NEW = MemberLog((), PhysicalOffset(0), PhysicalOffset(0))
"""Of a member that never followed."""


@pytest.mark.parametrize(
    ("master", "slave", "points"),
    [
        pytest.param(log(80, (1, 0)), log(80, (1, 0)), (80,), id="the same"),
        pytest.param(log(80, (1, 0)), log(50, (1, 0)), (50,), id="the slave is behind"),
        pytest.param(log(80, (1, 0)), log(90, (1, 0)), (80,), id="the slave is ahead"),
        pytest.param(
            log(90, (1, 0), (2, 60)), log(80, (1, 0)), (60,), id="the master restarted without it"
        ),
        pytest.param(
            log(90, (1, 0), (2, 60)), log(80, (1, 0), (2, 60)), (80, 60), id="both know the restart"
        ),
        pytest.param(
            log(90, (1, 0), (5, 60)), log(80, (1, 0), (4, 50)), (50,), id="two went on from one"
        ),
        pytest.param(
            log(90, (1, 0), (4, 70)), log(80, (1, 0), (4, 60)), (60,), id="one number, two starts"
        ),
        pytest.param(
            log(90, (1, 0), (2, 20), (3, 60)),
            log(40, (1, 0), (2, 20), (3, 60)),
            (40, 20),
            id="the slave knows an epoch of which it has no bytes",
        ),
        pytest.param(
            log(90, (1, 0), (3, 60)), log(60, (1, 0), (2, 60)), (60,), id="an epoch without bytes"
        ),
        pytest.param(log(90, (5, 0)), log(80, (4, 0)), (), id="nothing shared"),
        pytest.param(log(90, (1, 0), start=50), log(40, (1, 0)), (), id="ends before the master's"),
        pytest.param(log(90, (1, 0), start=50), log(50, (1, 0)), (), id="ends where it begins"),
        pytest.param(log(90, (1, 0), start=50), log(51, (1, 0)), (51,), id="a byte more"),
        pytest.param(
            log(90, (1, 0), (5, 40), start=50),
            log(80, (1, 0), (4, 40)),
            (),
            id="parted before the master's log begins",
        ),
        pytest.param(
            log(40, (1, 0)), log(90, (1, 0), start=50), (), id="begins behind the master's end"
        ),
        pytest.param(
            log(90, (1, 0), (2, 60)), log(80, (1, 0), start=70), (), id="begins where both differ"
        ),
        pytest.param(log(90, (1, 0)), NEW, (), id="empty"),
    ],
)
def test_logs_may_agree_up_to_the_bounds_of_shared_epochs(
    master: MemberLog, slave: MemberLog, points: tuple[int, ...]
) -> None:
    assert common_points(master, slave) == points


@pytest.mark.parametrize(
    ("point", "starts", "begins"),
    [
        (PROBE_BYTES * 3, (0, 0), PROBE_BYTES * 2),
        (PROBE_BYTES, (0, 0), 0),
        (100, (0, 0), 0),
        (100, (40, 0), 40),
        (100, (0, 70), 70),
    ],
)
def test_probe_covers_shared_bytes_before_the_point(
    point: int, starts: tuple[int, int], begins: int
) -> None:
    master, slave = (log(10 * PROBE_BYTES, (1, 0), start=start) for start in starts)
    assert probe(master, slave, PhysicalOffset(point)) == (begins, point)


@pytest.mark.parametrize(
    ("master", "slave", "common", "expected"),
    [
        pytest.param(
            log(80, (1, 0)), log(80, (1, 0)), 80, FollowFrom(PhysicalOffset(80)), id="same"
        ),
        pytest.param(
            log(80, (1, 0)), log(50, (1, 0)), 50, FollowFrom(PhysicalOffset(50)), id="behind"
        ),
        pytest.param(
            log(90, (1, 0), (2, 60)),
            log(80, (1, 0)),
            60,
            TruncateTo(PhysicalOffset(60)),
            id="diverged",
        ),
        pytest.param(
            log(60, (1, 0), (2, 60)),
            log(80, (1, 0)),
            60,
            TruncateTo(PhysicalOffset(60)),
            id="the master restarted and has nothing of its own yet",
        ),
        pytest.param(
            log(90, (1, 0), (2, 60)),
            log(80, (1, 0)),
            None,
            StartEmptyLog(PhysicalOffset(0)),
            id="alien",
        ),
        pytest.param(
            log(90, (1, 0), start=50),
            log(40, (1, 0)),
            None,
            StartEmptyLog(PhysicalOffset(50)),
            id="the master no longer has what comes next",
        ),
        pytest.param(log(90, (1, 0)), NEW, None, FollowFrom(PhysicalOffset(0)), id="new"),
        pytest.param(
            log(90, (1, 0), start=50), NEW, None, StartEmptyLog(PhysicalOffset(50)), id="new, later"
        ),
        pytest.param(
            log(90, (1, 0), start=50),
            log(50, (1, 0), start=50),
            None,
            FollowFrom(PhysicalOffset(50)),
            id="started over",
        ),
        pytest.param(
            log(90, (1, 0)),
            log(70, (1, 0), highest=4),
            70,
            MasterDeposed(4),
            id="the slave heard of it",
        ),
        pytest.param(
            log(90, (1, 0)), log(95, (1, 0), (4, 80)), 80, MasterDeposed(4), id="the slave was one"
        ),
        pytest.param(
            log(90, (1, 0), highest=7),
            log(70, (1, 0)),
            70,
            MasterDeposed(7),
            id="the master heard of it",
        ),
        pytest.param(
            log(90, (1, 0)), replace(NEW, highest=4), None, MasterDeposed(4), id="a new one too"
        ),
        pytest.param(
            log(90, (1, 0)),
            log(95, (1, 0), (2, 60)),
            60,
            MasterDeposed(2),
            id="a slave that has an epoch that the master does not know",
        ),
    ],
)
def test_slave_follows_cuts_or_starts_over(
    master: MemberLog, slave: MemberLog, common: int | None, expected: object
) -> None:
    at = None if common is None else PhysicalOffset(common)
    assert follow_decision(master, slave, at) == expected


def test_slave_of_another_store_is_refused_and_deposes_no_master() -> None:
    master = log(90, (1, 0))
    foreign = replace(log(80, (1, 0), (9, 10)), store_id="t")
    assert isinstance(why_not(master, foreign), FollowRefused)
    empty = replace(NEW, store_id="t")
    assert isinstance(why_not(master, replace(empty, highest=9)), FollowRefused)
    assert follow_decision(master, empty, None) == FollowFrom(PhysicalOffset(0))
    unknown = replace(log(80, (1, 0)), store_id="")
    assert isinstance(why_not(master, unknown), FollowRefused)


@pytest.mark.parametrize("last", [(1, 0), (2, 60), (2, 80)])
def test_master_lacking_bytes_of_its_own_epoch_cuts_no_slave(last: tuple[int, int]) -> None:
    entries = [(1, 0), last] if last[0] > 1 else [last]
    refused = follow_decision(log(80, *entries), log(90, *entries), PhysicalOffset(80))
    assert isinstance(refused, FollowRefused)
    assert "the slave's log goes to 90 in epoch" in refused.reason
    assert "its master's to 80 only: the master's disk was set back" in refused.reason


def test_two_epochs_of_equal_number_and_start_are_told_apart_by_bytes() -> None:
    """The disk of the first was set back, or its member made a second one without knowing."""
    shared = bytes(range(60))
    logs = {"master": shared + b"x" * 30, "slave": shared + b"y" * 20}
    master, slave = (log(len(logs[who]), (1, 0), (2, 60)) for who in ("master", "slave"))

    def agree(point: PhysicalOffset) -> bool:
        start, end = probe(master, slave, point)
        return len({zlib.crc32(data[start:end]) for data in logs.values()}) == 1

    common = next(filter(agree, common_points(master, slave)), None)
    assert follow_decision(master, slave, common) == TruncateTo(PhysicalOffset(60))


def test_epochs_begin_at_the_end_and_omit_those_without_bytes() -> None:
    assert begin((), 1, PhysicalOffset(0)) == epochs((1, 0))
    assert begin(epochs((1, 0)), 2, PhysicalOffset(50)) == epochs((1, 0), (2, 50))
    assert begin(epochs((1, 0), (2, 50)), 3, PhysicalOffset(50)) == epochs((1, 0), (3, 50))
    assert begin(epochs((1, 0), (2, 50)), 3, PhysicalOffset(40)) == epochs((1, 0), (3, 40))
    with pytest.raises(AssertionError):
        begin(epochs((2, 0)), 2, PhysicalOffset(50))


def test_cut_leaves_the_epochs_that_have_bytes() -> None:
    entries = epochs((1, 0), (2, 50), (3, 50), (4, 70))
    assert cut_to(entries, PhysicalOffset(70)) == entries[:3]
    assert cut_to(entries, PhysicalOffset(50)) == entries[:1]
    assert cut_to(entries, PhysicalOffset(0)) == ()


@pytest.mark.parametrize(("end", "reached"), [(0, 1), (49, 1), (50, 3), (69, 3), (70, 4), (90, 4)])
def test_log_may_list_unreached_epochs(end: int, reached: int) -> None:
    entries = epochs((1, 0), (2, 50), (3, 50), (4, 70))
    assert newest_reached(entries, PhysicalOffset(end)) == reached
    assert newest_reached((), PhysicalOffset(end)) == 0


def test_first_epoch_is_1_and_a_restart_takes_the_next() -> None:
    assert newest(()) == 0
    assert number_after_restart(0) == 1
    assert number_after_restart(2_001_004) == 2_001_005


def test_promotion_beats_every_restart_of_the_replaced_master() -> None:
    restarts = 0
    for _ in range(900):
        restarts = number_after_restart(restarts)
    promoted = number_of_promotion(1, 1)
    assert promoted == 1_001_000 > restarts
    assert number_of_promotion(number_after_restart(promoted), 0) == 2_000_000
    assert number_of_promotion(2_000_000, 2) == 3_002_000


@given(
    known=st.integers(0, EPOCH_STORED_MAX),
    broker_id=st.integers(0, (1 << 63) - 1),
)
def test_given_numbers_rise_fit_and_are_believed_or_are_refused(known: int, broker_id: int) -> None:
    def promote(highest: int) -> int:
        return number_of_promotion(highest, broker_id)

    for give in (number_after_restart, promote):
        if known <= EPOCH_MAX - 2_000_000:
            number = give(known)
            assert known < number <= EPOCH_MAX
            assert not doubt_of(number, known)
        elif known >= EPOCH_MAX:
            with pytest.raises(RefusedError, match="repair-epoch"):
                give(known)


@given(st.lists(st.integers(0, 999), max_size=900), st.integers(0, EPOCH_MAX - 10**10))
def test_promotions_in_a_row_are_believed_by_whoever_missed_them(
    ids: list[int], known: int
) -> None:
    number = known
    for broker_id in ids:
        number = number_after_restart(number_of_promotion(number, broker_id))
    assert not doubt_of(number, known)


def test_two_concurrent_promotions_get_distinct_epochs() -> None:
    reigns: list[int] = []
    for broker_id in (0, 1, 2, 999):
        reigns.append(number_of_promotion(5, broker_id))
        for _ in range(900):
            reigns.append(number_after_restart(reigns[-1]))
    assert len(set(reigns)) == len(reigns)


ENDED = tuple(Epoch(number, PhysicalOffset(start)) for number, start in ((1, 0), (3, 70), (9, 70)))


@pytest.mark.parametrize(("number", "end"), [(0, 0), (1, 70), (2, 70), (3, 70), (9, None)])
def test_epoch_ends_where_a_later_one_begins(number: int, end: int | None) -> None:
    assert ended_at(ENDED, number) == end
    assert ended_at((), number) is None
