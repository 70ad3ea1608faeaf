from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.state.recent_changes import RecentChanges


def test_each_change_is_reported_once_and_in_order() -> None:
    recent = RecentChanges[str]()
    for key in "abca":
        recent.note(key)
    keys, number, more = recent.since(0, most=10)
    assert [key for key, _ in keys] == ["b", "c", "a"]
    assert not more
    assert recent.since(number, most=10).keys == []
    recent.note("b")
    assert recent.since(number, most=10).keys == [("b", False)]


def test_changes_are_paged() -> None:
    recent = RecentChanges[int]()
    for key in range(10):
        recent.note(key)
    found: list[int] = []
    number, more = 0, True
    while more:
        keys, number, more = recent.since(number, most=3)
        assert len(keys) <= 3
        found += [key for key, _ in keys]
    assert found == list(range(10))


def test_removal_is_reported_even_when_recreated() -> None:
    recent = RecentChanges[str]()
    recent.note("a")
    recent.note("b")
    before = recent.since(0, most=10).number
    recent.note("a", removed=True)
    recent.note("a")
    recent.note("b")
    assert recent.since(before, most=10).keys == [("a", True), ("b", False)]
    assert recent.since(recent.since(0, most=10).number, most=10).keys == []


def test_old_entries_are_swept_out() -> None:
    recent = RecentChanges[int]()
    for turn in range(20_000):
        recent.note(turn % 7)
    assert recent.places < 2_000
    assert [key for key, _ in recent.since(0, most=100).keys] == [
        (20_000 + n) % 7 for n in range(7)
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())), st.integers(0, 30), st.integers(1, 4))
def test_reader_misses_no_change_whenever_it_comes(
    changes: list[tuple[int, bool]], first: int, most: int
) -> None:
    recent, seen = RecentChanges[int](), set[int]()
    number = 0
    for at, (key, removed) in enumerate(changes):
        if at == first:
            seen |= {key for key, _ in recent.since(0, most=100).keys}
            number = recent.since(0, most=100).number
        recent.note(key, removed=removed)
    more = True
    while more:
        keys, number, more = recent.since(number, most=most)
        seen |= {key for key, _ in keys}
    assert seen == {key for key, _ in changes}
