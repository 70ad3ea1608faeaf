"""The checker of histories finds every fault that is planted."""

from dataclasses import replace

import pytest

from ternmq_model.queue import MessageQueue
from tests.support.history import (
    Decision,
    Delivery,
    GroupRules,
    History,
    Lying,
    Outcome,
    id_of,
    make_body,
)

QUEUE = MessageQueue("t", "b", 0)
RULES = GroupRules("g", frozenset({"t"}), redeliveries_max=0, is_orderly=True, attempts=3)


def delivery(number: int, *, at_ms: int = 1000, attempt: int = 0, done: bool = True) -> Delivery:
    name = f"m{number}"
    return Delivery(name, "g", make_body(name, 40), QUEUE, number, at_ms, attempt, done)


def lying(number: int, offset: int | None = None) -> Lying:
    name = f"m{number}"
    return Lying(name, make_body(name, 40), QUEUE, number if offset is None else offset, 1000)


def good(count: int = 4) -> History:
    """Return a history without a fault."""
    history = History()
    for number in range(count):
        history.note_sent(f"m{number}", "t", Outcome.STORED, key="k")
        history.lying.append(lying(number))
        history.deliveries.append(delivery(number))
    return history


def names(history: History, rules: GroupRules = RULES) -> set[str]:
    return {fault.name for fault in history.faults([rules])}


def test_good_history_has_no_fault() -> None:
    history = good()
    assert not names(history)
    history.check([RULES])


def test_failed_check_names_the_seed_and_the_faults() -> None:
    history = good()
    history.lying.pop()
    with pytest.raises(AssertionError, match=r"seed 7: .*'lost': 1"):
        history.check([RULES], seed=7)


def test_lost_message_is_found() -> None:
    history = good()
    history.lying.pop()
    assert names(history) == {"lost"}


def test_unknown_outcome_may_be_either() -> None:
    history = good()
    history.note_sent("m4", "t", Outcome.UNKNOWN)
    assert not names(history)
    history.lying.append(lying(4))
    history.deliveries.append(delivery(4))
    assert not names(history)


def test_message_stored_twice_is_found_unless_allowed() -> None:
    history = good()
    history.lying.append(lying(3, 4))
    history.deliveries.append(replace(delivery(3), queue_offset=4, is_finished=False))
    assert names(history) == {"stored-twice"}
    history.stored_twice_allowed = True
    assert not names(history)


def test_transaction_is_never_stored_twice() -> None:
    history = History(stored_twice_allowed=True)
    history.note_sent("m0", "t", Outcome.STORED, decision=Decision.COMMITTED)
    history.lying += [lying(0), lying(0, 1)]
    history.deliveries.append(delivery(0))
    assert names(history) == {"stored-twice"}


def test_phantom_is_found() -> None:
    history = good()
    history.lying.append(lying(4))
    assert names(history) == {"phantom", "unconsumed"}
    history.note_sent("m4", "t", Outcome.REFUSED)
    history.deliveries.append(delivery(4))
    assert names(history) == {"phantom"}


def test_corrupted_body_is_found() -> None:
    history = good()
    history.lying[2] = replace(history.lying[2], body=make_body("m2", 40)[:-1] + b"?")
    assert names(history) == {"corrupted"}


def test_hole_is_found() -> None:
    history = good()
    history.lying[3] = lying(3, 5)
    history.deliveries[3] = replace(history.deliveries[3], queue_offset=5, is_finished=True)
    assert "hole" in names(history, replace(RULES, is_orderly=False))


def test_misplaced_message_is_found() -> None:
    history = good()
    history.deliveries[3] = replace(delivery(3), queue_offset=2)
    assert names(history) == {"moved"}


def test_changed_order_is_found() -> None:
    history = good()
    history.lying[1:3] = [lying(2, 1), lying(1, 2)]
    history.deliveries[1:3] = [
        replace(delivery(2), queue_offset=1),
        replace(delivery(1), queue_offset=2),
    ]
    assert names(history) == {"reordered"}


def test_key_that_changes_its_queue_is_found() -> None:
    history = good()
    history.lying[3] = replace(lying(3), queue=MessageQueue("t", "b", 1))
    assert "reordered" in names(history)


def test_message_skipped_by_an_orderly_group_is_found() -> None:
    history = good()
    history.deliveries[1] = delivery(1, done=False)
    history.deliveries.append(delivery(1))
    assert names(history) == {"skipped"}


def test_message_unfinished_by_every_group_is_found() -> None:
    history = good()
    history.deliveries[3] = delivery(3, done=False)
    assert names(history) == {"unconsumed"}
    assert not names(history, replace(RULES, is_whole=False))


def test_message_a_group_did_not_ask_for_is_found() -> None:
    history = good()
    rules = replace(RULES, unwanted=frozenset({"m3"}), is_orderly=False)
    assert names(history, rules) == {"unwanted"}
    history.deliveries.pop()
    assert not names(history, rules)


def test_excessive_redeliveries_are_found() -> None:
    history = good()
    history.deliveries.append(delivery(3))
    assert names(history) == {"redelivered"}
    assert not names(history, replace(RULES, redeliveries_max=1))


def test_early_message_is_found_in_queue_and_listener() -> None:
    history = good()
    history.sent["m3"].not_before_ms = 1001
    assert names(history) == {"early"}
    history.lying[3] = replace(history.lying[3], stored_at_ms=1001)
    history.deliveries[3] = delivery(3, at_ms=1001)
    assert not names(history)


@pytest.mark.parametrize(
    ("decision", "fault"),
    [
        (Decision.UNDECIDED, "undecided-visible"),
        (Decision.ROLLED_BACK, "rolled-back-visible"),
    ],
)
def test_visible_message_of_uncommitted_transaction_is_found(
    decision: Decision, fault: str
) -> None:
    history = good()
    history.sent["m3"].decision = decision
    assert names(history) == {fault}
    history.lying.pop()
    history.deliveries.pop()
    assert not names(history)


def test_commit_of_unknown_outcome_may_be_visible_or_not() -> None:
    history = good()
    history.sent["m3"].decision = Decision.IN_DOUBT
    assert not names(history)
    history.lying.pop()
    history.deliveries.pop()
    assert not names(history)


def doomed() -> tuple[History, GroupRules]:
    """Return a history in which m3 is a dead letter after three attempts."""
    history = good()
    history.deliveries[3:] = [delivery(3, attempt=each, done=False) for each in range(3)]
    history.dead["g"] = [lying(3)]
    return history, replace(RULES, doomed=frozenset({"m3"}))


def test_dead_letter_in_time_is_no_fault() -> None:
    assert not names(*doomed())


def test_missing_dead_letter_is_found() -> None:
    history, rules = doomed()
    history.dead.clear()
    assert names(history, rules) == {"dead-letter-missing"}


def test_dead_letter_before_all_attempts_is_found() -> None:
    history, rules = doomed()
    history.deliveries.pop()
    assert names(history, rules) == {"dead-letter-early"}


def test_undue_dead_letter_is_found() -> None:
    history, rules = doomed()
    assert names(history, replace(rules, doomed=frozenset())) == {"dead-letter-spurious"}
    history.deliveries.append(delivery(3))
    assert names(history, rules) == {"dead-letter-spurious"}


def test_bodies_contain_their_id_and_have_the_requested_size() -> None:
    assert id_of(make_body("m-1", 1000)) == "m-1"
    assert [len(make_body("m", size)) for size in (0, 1, 2, 3, 50)] == [2, 2, 2, 3, 50]
