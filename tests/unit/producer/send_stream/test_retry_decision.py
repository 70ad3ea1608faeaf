"""Whether and where a message is tried again."""

from ternmq_model.errors import ConnectionLost, IllegalMessage, Unreachable, refusal
from ternmq_producer.send_stream.retry_decision import Verdict, judge


def judged(error: Exception, **changes: object) -> Verdict:
    facts: dict[str, object] = {
        "attempts": 1,
        "attempts_max": 3,
        "is_ordered": False,
        "maybe_stored": False,
        "duplicates_allowed": True,
        "looks_up": False,
        "is_away": isinstance(error, Unreachable),
    } | changes
    return judge(error, **facts)  # type: ignore[arg-type]


def test_refused_message_is_retried_elsewhere_and_an_ordered_one_here() -> None:
    busy = refusal(2, "busy")
    assert judged(busy) is Verdict.AGAIN_ANYWHERE
    assert judged(busy, is_ordered=True) is Verdict.AGAIN_HERE
    assert judged(busy, attempts=3) is Verdict.GIVE_UP
    assert judged(refusal(13, "illegal")) is Verdict.GIVE_UP
    assert judged(IllegalMessage("too large")) is Verdict.GIVE_UP


def test_message_in_doubt_is_retried_where_it_may_be_stored() -> None:
    lost = ConnectionLost("lost")
    assert judged(lost, maybe_stored=True) is Verdict.AGAIN_HERE
    assert judged(lost, maybe_stored=True, duplicates_allowed=False) is Verdict.GIVE_UP
    sure = {"maybe_stored": True, "duplicates_allowed": False, "looks_up": True}
    assert judged(lost, **sure) is Verdict.AGAIN_HERE
    assert judged(Unreachable("away"), **sure) is Verdict.AGAIN_HERE
    assert judged(lost, attempts=3, **sure) is Verdict.GIVE_UP
    away = Unreachable("away")
    assert judged(away, attempts=9) is Verdict.AGAIN_ANYWHERE
    assert judged(away, attempts=9, is_ordered=True) is Verdict.AGAIN_HERE
    assert judged(away, maybe_stored=True) is Verdict.AGAIN_ANYWHERE
    assert judged(away, maybe_stored=True, is_away=False) is Verdict.AGAIN_HERE
    assert judged(away, maybe_stored=True, duplicates_allowed=False) is Verdict.GIVE_UP
    assert judged(away, duplicates_allowed=False) is Verdict.AGAIN_ANYWHERE
    assert judged(away, maybe_stored=True, is_ordered=True) is Verdict.AGAIN_HERE
