"""Promises: each can be broken, and is then named."""

from ternmq_model.message import SendResult, SendStatus
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.transaction import Resolution
from ternmq_testing.explore.journal import Journal, Knowledge, NotedSend
from ternmq_testing.explore.promises import Stored, broken_promises

QUEUE = MessageQueue("orders", "broker-a", 0)
NOW_MS = 1_000_000


def journal() -> Journal:
    return Journal(lambda: 0.0, lambda: NOW_MS, lambda: None)


def acknowledged(
    journal: Journal,
    message_id: str,
    offset: int = 0,
    *,
    key: str = "",
    due_ms: int = 0,
    is_half: bool = False,
    status: SendStatus = SendStatus.SEND_OK,
    cancels: str = "",
) -> None:
    """Note a message that its broker has acknowledged."""
    place = (QUEUE, QueueOffset(offset), PhysicalOffset(0), bytes(8))
    result = SendResult(status, message_id, *place)
    number = len(journal.sends) + 1
    sent = NotedSend(number, 1, "orders", key, due_ms, is_half, cancels)
    sent.knowledge, sent.result = Knowledge.ACKNOWLEDGED, result
    journal.sends.append(sent)


def broken(journal: Journal, *lying: str, starts_at: int = 0, is_durable: bool = True) -> list[str]:
    """Return the broken promises when these messages lie in the queue; empty = any other one."""
    at = {
        (QUEUE, starts_at + index): message_id
        for index, message_id in enumerate(lying)
        if message_id
    }
    stored = Stored(at, {QUEUE: starts_at})
    return broken_promises(journal, stored, now_ms=NOW_MS, is_durable=is_durable)


def test_acknowledged_messages_in_their_places_keep_the_promises() -> None:
    noted = journal()
    acknowledged(noted, "a", 0, key="k")
    acknowledged(noted, "b", 1, key="k")
    assert broken(noted, "a", "b") == []


def test_missing_message_is_lost() -> None:
    noted = journal()
    acknowledged(noted, "a", 1)
    (text,) = broken(noted, "b")
    assert text.startswith("lost: message #1")
    assert "nothing is there" in text
    assert "message b is there" in broken(noted, "c", "b")[0]


def test_message_may_be_lost_without_durability_or_with_another_status_or_after_retention() -> None:
    noted = journal()
    acknowledged(noted, "a", 0)
    assert broken(noted, is_durable=False) == []
    assert broken(noted, "x", starts_at=1) == []
    noted = journal()
    acknowledged(noted, "a", 0, status=SendStatus.FLUSH_DISK_TIMEOUT)
    assert broken(noted) == []


def test_delayed_message_is_lost_some_time_after_it_was_due() -> None:
    noted = journal()
    acknowledged(noted, "a", due_ms=NOW_MS - 100_000)
    assert broken(noted) == ["lost: delayed message #1 was acknowledged and never delivered"]
    assert broken(noted, "a") == []
    noted = journal()
    acknowledged(noted, "a", due_ms=NOW_MS)
    assert broken(noted) == []


def test_cancelled_message_is_not_lost() -> None:
    noted = journal()
    acknowledged(noted, "a", due_ms=NOW_MS - 100_000)
    acknowledged(noted, "b", due_ms=NOW_MS - 100_000, cancels="a")
    assert broken(noted) == []


def test_messages_of_a_key_in_another_order_are_named() -> None:
    noted = journal()
    acknowledged(noted, "a", 1, key="k")
    acknowledged(noted, "b", 0, key="k")
    (text,) = broken(noted, "b", "a")
    assert text.startswith("reordered: key 'k': message #2 has offset 0")
    noted.sends[0].key = "other"
    assert broken(noted, "b", "a") == []


def test_second_copy_of_a_message_does_not_change_its_order() -> None:
    noted = journal()
    acknowledged(noted, "a", 2, key="k")
    acknowledged(noted, "b", 1, key="k")
    assert broken(noted, "a", "b", "a") == []


def test_rolled_back_message_is_not_visible() -> None:
    noted = journal()
    acknowledged(noted, "a", is_half=True)
    noted.resolved("a", Resolution.ROLLBACK, by="execute")
    assert broken(noted) == []
    assert broken(noted, "a") == ["rolled back and visible: message #1 is in its topic"]
    noted.delivered["a"] = "billing"
    assert broken(noted) == ["rolled back and visible: group billing got message #1"]


def test_confirmed_commit_is_visible() -> None:
    noted = journal()
    acknowledged(noted, "a", is_half=True)
    transaction = noted.resolved("a", Resolution.COMMIT, by="execute")
    assert broken(noted) == []
    transaction.is_confirmed = True
    assert broken(noted) == ["lost: the commit of #1 was confirmed and orders lacks it"]
    assert broken(noted, "a") == []


def test_check_that_contradicts_execute_is_named() -> None:
    noted = journal()
    acknowledged(noted, "a", is_half=True)
    noted.resolved("a", Resolution.UNKNOWN, by="execute")
    noted.resolved("a", Resolution.COMMIT, by="check")
    assert broken(noted, "a") == []
    noted.resolved("a", Resolution.ROLLBACK, by="check")
    assert broken(noted, "a") == [
        "contradicted: execute and check said of #1: COMMIT, then ROLLBACK"
    ]
