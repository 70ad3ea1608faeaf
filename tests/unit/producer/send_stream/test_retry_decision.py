"""Decisions about a message that failed: whether and where it is tried again."""

from ternmq_model.errors import ConnectionLost, IllegalMessage, Unreachable, refusal
from ternmq_producer.send_stream.retry_decision import RetryDecision, decide_retry


def judged(error: Exception, **changes: object) -> RetryDecision:
    facts: dict[str, object] = {
        "attempts": 1,
        "attempts_max": 3,
        "is_ordered": False,
        "maybe_stored": False,
        "duplicates_allowed": True,
        "looks_up": False,
        "is_away": isinstance(error, Unreachable),
    } | changes
    return decide_retry(error, **facts)  # type: ignore[arg-type]


def test_refused_message_is_retried_elsewhere_and_an_ordered_one_here() -> None:
    busy = refusal(2, "busy")
    assert judged(busy) is RetryDecision.AGAIN_ANYWHERE
    assert judged(busy, is_ordered=True) is RetryDecision.AGAIN_HERE
    assert judged(busy, attempts=3) is RetryDecision.GIVE_UP
    assert judged(refusal(13, "illegal")) is RetryDecision.GIVE_UP
    assert judged(IllegalMessage("too large")) is RetryDecision.GIVE_UP


def test_message_in_doubt_is_retried_where_it_may_be_stored() -> None:
    lost = ConnectionLost("lost")
    assert judged(lost, maybe_stored=True) is RetryDecision.AGAIN_HERE
    assert judged(lost, maybe_stored=True, duplicates_allowed=False) is RetryDecision.GIVE_UP
    sure = {"maybe_stored": True, "duplicates_allowed": False, "looks_up": True}
    assert judged(lost, **sure) is RetryDecision.AGAIN_HERE
    assert judged(Unreachable("away"), **sure) is RetryDecision.AGAIN_HERE
    assert judged(lost, attempts=3, **sure) is RetryDecision.GIVE_UP
    away = Unreachable("away")
    assert judged(away, attempts=9) is RetryDecision.AGAIN_ANYWHERE
    assert judged(away, attempts=9, is_ordered=True) is RetryDecision.AGAIN_HERE
    assert judged(away, maybe_stored=True) is RetryDecision.AGAIN_ANYWHERE
    assert judged(away, maybe_stored=True, is_away=False) is RetryDecision.AGAIN_HERE
    assert judged(away, maybe_stored=True, duplicates_allowed=False) is RetryDecision.GIVE_UP
    assert judged(away, duplicates_allowed=False) is RetryDecision.AGAIN_ANYWHERE
    assert judged(away, maybe_stored=True, is_ordered=True) is RetryDecision.AGAIN_HERE
