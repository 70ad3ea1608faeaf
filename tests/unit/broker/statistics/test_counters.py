import pytest

from ternmq_broker.statistics.counters import DAY, HOUR, MINUTE, SPANS, Counter

SECOND_MS = 1000


def run(counter: Counter, seconds: range, place: int, per_sample: int) -> None:
    """Add so much before each sample."""
    for second in seconds:
        counter.messages += per_sample
        counter.sample(place, now_ms=second * SECOND_MS)


def test_counter_spans_equal_rocketmqs() -> None:
    assert [(span.period_ms, span.samples) for span in SPANS] == [
        (10_000, 7),
        (600_000, 7),
        (3_600_000, 25),
    ]


def test_young_counter_spans_its_whole_age() -> None:
    counter = Counter()
    counter.messages = 5
    added = counter.added(0, now_ms=4_000, begun_at_ms=1_000)
    assert (added.ms, added.sums.messages) == (3_000, 5)


@pytest.mark.parametrize(("place", "span"), list(enumerate((MINUTE, HOUR, DAY))))
def test_span_reaches_back_to_its_oldest_sample(place: int, span: object) -> None:
    kept = SPANS[place]
    counter = Counter()
    period_s = kept.period_ms // SECOND_MS
    run(counter, range(period_s, period_s * 101, period_s), place, per_sample=2)
    counter.messages += 1
    now_ms = 100 * kept.period_ms + 5
    added = counter.added(place, now_ms=now_ms, begun_at_ms=0)
    assert added.ms == (kept.samples - 1) * kept.period_ms + 5
    assert added.sums.messages == (kept.samples - 1) * 2 + 1
    assert counter.sums.messages == 201


def test_idle_counter_falls_out_of_the_span() -> None:
    counter = Counter()
    run(counter, range(10, 80, 10), 0, per_sample=3)
    run(counter, range(80, 150, 10), 0, per_sample=0)
    assert counter.added(0, now_ms=145_000, begun_at_ms=0).sums.messages == 0
    assert counter.sums.messages == 21
