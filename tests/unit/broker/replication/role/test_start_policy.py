from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ternmq_broker.replication.role.start_policy import (
    Answer,
    MemberAnswer,
    NameServerAnswer,
    OwnState,
    StartRole,
    decide_start,
    may_be_lost,
    why_not_promote,
)
from ternmq_broker.state.epochs import Epoch, Epochs, MemberLog
from ternmq_model.offsets import PhysicalOffset

EPOCHS = (Epoch(1, PhysicalOffset(0)), Epoch(4, PhysicalOffset(60)))
LOG_END = PhysicalOffset(80)
MASTER = OwnState(
    broker_id=0,
    is_master=True,
    is_replicated=True,
    is_empty=False,
    was_clean=True,
    epochs=EPOCHS,
    log_end=LOG_END,
)
CRASHED = replace(MASTER, was_clean=False)
ALONE = replace(MASTER, is_replicated=False)
NEW = replace(MASTER, is_empty=True, epochs=(), log_end=PhysicalOffset(0))
SLAVE = replace(MASTER, is_master=False, broker_id=1)
LOSSY = replace(CRASHED, may_lack_confirmed=True)


FIRST = replace(NEW, is_replicated=False)


def nameserver(highest: int | None) -> Answer:
    return NameServerAnswer(highest)


def log(epochs: Epochs, end: int) -> MemberLog:
    return MemberLog(epochs, PhysicalOffset(0), PhysicalOffset(end))


def member(highest: int, newest: int | None = None, log_end: int = 80) -> MemberAnswer:
    return MemberAnswer(highest, highest if newest is None else newest, PhysicalOffset(log_end))


RIVAL = member(1)._replace(is_master=True)


@pytest.mark.parametrize(
    ("own", "answers", "start", "begins"),
    [
        pytest.param(SLAVE, [], StartRole.SLAVE, None, id="a slave needs nobody"),
        pytest.param(SLAVE, [nameserver(4)], StartRole.SLAVE, None, id="a slave stays one"),
        pytest.param(MASTER, [], StartRole.WAIT, None, id="nobody answers"),
        pytest.param(FIRST, [], StartRole.MASTER, 1, id="new and alone"),
        pytest.param(
            FIRST, [nameserver(1)], StartRole.MASTER, 1, id="new: what it was before is gone"
        ),
        pytest.param(FIRST, [nameserver(2)], StartRole.SLAVE, None, id="new: it would be refused"),
        pytest.param(
            FIRST, [member(1)], StartRole.SLAVE, None, id="new: a slave has what was here"
        ),
        pytest.param(FIRST, [RIVAL], StartRole.MASTER, 1, id="new: another process of that name"),
        pytest.param(MASTER, [nameserver(4)], StartRole.MASTER, None, id="clean: goes on"),
        pytest.param(
            MASTER, [nameserver(3)], StartRole.MASTER, None, id="the NameServer is behind"
        ),
        pytest.param(CRASHED, [nameserver(4)], StartRole.MASTER, 5, id="crashed: the next"),
        pytest.param(CRASHED, [member(4)], StartRole.MASTER, 5, id="a slave confirms"),
        pytest.param(CRASHED, [member(1, 1)], StartRole.MASTER, 5, id="a slave from long ago"),
        pytest.param(
            MASTER, [nameserver(None)], StartRole.WAIT, None, id="NameServer knows nothing"
        ),
        pytest.param(
            MASTER, [nameserver(None), member(4)], StartRole.MASTER, None, id="a member does"
        ),
        pytest.param(MASTER, [nameserver(5)], StartRole.SLAVE, None, id="replaced"),
        pytest.param(MASTER, [nameserver(4), nameserver(5)], StartRole.SLAVE, None, id="one knows"),
        pytest.param(
            MASTER, [nameserver(4), member(5)], StartRole.SLAVE, None, id="a member knows"
        ),
        pytest.param(MASTER, [member(5, 4)], StartRole.SLAVE, None, id="a member heard of it"),
        pytest.param(
            replace(MASTER, highest=5), [nameserver(4)], StartRole.SLAVE, None, id="it heard itself"
        ),
        pytest.param(ALONE, [], StartRole.MASTER, None, id="never replicated: needs nobody"),
        pytest.param(
            replace(ALONE, was_clean=False), [], StartRole.MASTER, 5, id="alone and crashed"
        ),
        pytest.param(ALONE, [nameserver(None)], StartRole.MASTER, None, id="alone, NameServer new"),
        pytest.param(ALONE, [nameserver(5)], StartRole.SLAVE, None, id="alone, and yet replaced"),
        pytest.param(NEW, [nameserver(None)], StartRole.MASTER, 1, id="the first ever"),
        pytest.param(NEW, [], StartRole.WAIT, None, id="new, nobody answers"),
        pytest.param(
            replace(NEW, is_replicated=False), [], StartRole.MASTER, 1, id="new and alone"
        ),
        pytest.param(NEW, [nameserver(4)], StartRole.SLAVE, None, id="its disk was destroyed"),
        pytest.param(
            replace(NEW, is_replicated=False),
            [member(4)],
            StartRole.SLAVE,
            None,
            id="the same, alone",
        ),
        pytest.param(
            replace(NEW, epochs=EPOCHS[:1], was_clean=False),
            [nameserver(None)],
            StartRole.MASTER,
            2,
            id="crashed before the first message",
        ),
        pytest.param(LOSSY, [nameserver(4)], StartRole.MASTER, 5, id="lossy, no member answers"),
        pytest.param(LOSSY, [member(4)], StartRole.MASTER, 5, id="lossy, nothing is missing"),
        pytest.param(
            LOSSY,
            [nameserver(4), member(4, log_end=81)],
            StartRole.WAIT,
            None,
            id="lossy, and lost",
        ),
        pytest.param(
            replace(LOSSY, log_end=PhysicalOffset(50)),
            [member(1, log_end=51)],
            StartRole.WAIT,
            None,
            id="lossy, and lost more than its last reign",
        ),
        pytest.param(
            LOSSY, [member(1, log_end=90)], StartRole.MASTER, 5, id="lossy, others went another way"
        ),
        pytest.param(
            CRASHED, [member(4, log_end=81)], StartRole.MASTER, 5, id="more than was flushed here"
        ),
    ],
)
def test_member_starts_in_its_required_role(
    own: OwnState, answers: Sequence[Answer], start: StartRole, begins: int | None
) -> None:
    decision = decide_start(own, answers)
    assert (decision.start, decision.begins) == (start, begins)
    assert decision.reason


@pytest.mark.parametrize(
    ("own", "answers", "start", "begins"),
    [
        pytest.param(MASTER, [], StartRole.MASTER, None, id="nobody answers"),
        pytest.param(CRASHED, [], StartRole.MASTER, 5, id="nobody answers, crashed"),
        pytest.param(LOSSY, [member(4, log_end=81)], StartRole.MASTER, 5, id="and does without it"),
        pytest.param(
            NEW, [nameserver(1_001_000)], StartRole.MASTER, 2_000_000, id="the NameServer is wrong"
        ),
        pytest.param(
            MASTER, [member(5)], StartRole.SLAVE, None, id="a member of a higher one answers"
        ),
        pytest.param(SLAVE, [], StartRole.SLAVE, None, id="slaves are promoted, not forced"),
    ],
)
def test_force_replaces_missing_answers(
    own: OwnState, answers: Sequence[Answer], start: StartRole, begins: int | None
) -> None:
    decision = decide_start(own, answers, is_forced=True)
    assert (decision.start, decision.begins) == (start, begins)


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([], ""),
        ([member(4)], ""),
        ([member(9, 4, 70)], ""),
        ([member(1, 1, 900)], ""),
        ([member(4, 4, 81)], "another member has the log up to 81 in epoch 4, this one up to 80"),
        ([member(1, 1, 9), member(5, 5, 70)], "another member has the log up to 70 in epoch 5"),
    ],
)
def test_slave_with_the_longest_log_of_the_newest_epoch_is_promoted(
    others: Sequence[MemberAnswer], reason: str
) -> None:
    found = why_not_promote(log(EPOCHS, LOG_END), others)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


@pytest.mark.parametrize("how", [{"is_master": True}, {"is_following": True}])
def test_slave_is_not_promoted_beside_a_living_master(how: dict[str, Any]) -> None:
    living = member(4)._replace(**how)
    assert "its master is alive" in why_not_promote(log(EPOCHS, LOG_END), [living])
    # One that has not heard yet that it was replaced is none.
    heard = replace(log(EPOCHS, LOG_END), highest=5)
    assert not why_not_promote(heard, [living])


def test_slave_with_all_bytes_before_the_last_epoch_may_be_promoted() -> None:
    behind, there = log(EPOCHS, 59), log(EPOCHS, 60)
    restarted = member(3, 3, 70)
    assert why_not_promote(behind, [restarted])
    assert not why_not_promote(there, [restarted])


def test_empty_slave_is_not_promoted() -> None:
    for entries in ((), EPOCHS[:1]):
        assert "its log is empty" in why_not_promote(log(entries, 0), [])


@pytest.mark.parametrize(
    ("lag_bytes", "ends", "count"), [(0, [], 0), (7, [], 7), (7, [LOG_END + 9], 9), (3, [0], 3)]
)
def test_refused_promotion_tells_what_others_may_have(
    lag_bytes: int, ends: list[int], count: int
) -> None:
    others = [MemberAnswer(2, 2, PhysicalOffset(end)) for end in ends]
    end = PhysicalOffset(LOG_END)
    told = may_be_lost(end, others, lag_bytes=lag_bytes, is_following=True)
    assert told == f"others may have {count} acknowledged bytes that this log lacks"
    told = may_be_lost(end, others, lag_bytes=lag_bytes, is_following=False)
    assert told.endswith(
        "lacks, and what their master acknowledged since its last message to this slave"
    )
