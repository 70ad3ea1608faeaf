import pytest

from ternmq_security.access.access_table import AccessTable, Doubt, first_administrator
from ternmq_security.access.table_choice import replaces
from ternmq_security.access.user import User

ROOT = User("root", (), ("CN=root",))
FIRST = first_administrator(AccessTable(), ROOT, "home")
NEXT = FIRST.with_user(User("a"))
FOREIGN = first_administrator(AccessTable(version=9), ROOT, "elsewhere")
OPEN, UNASKED, REFUSED = (AccessTable(doubt=each) for each in Doubt)
GRANTED = AccessTable(version=3)


@pytest.mark.parametrize(
    ("present", "taken", "ignored"),
    [
        (OPEN, [FIRST, NEXT, FOREIGN, GRANTED, REFUSED], [OPEN, UNASKED]),
        (AccessTable(version=20), [FIRST, FOREIGN, REFUSED], [OPEN, GRANTED, UNASKED]),
        (UNASKED, [OPEN, GRANTED, FIRST, FOREIGN, REFUSED], [UNASKED]),
        (REFUSED, [FIRST, FOREIGN], [OPEN, GRANTED, UNASKED, REFUSED]),
        (FIRST, [NEXT], [OPEN, GRANTED, UNASKED, REFUSED, FIRST, FOREIGN]),
        (NEXT, [], [FIRST, NEXT, FOREIGN, OPEN, GRANTED, UNASKED, REFUSED]),
    ],
)
def test_table_in_place_of_the_present_one(
    present: AccessTable, taken: list[AccessTable], ignored: list[AccessTable]
) -> None:
    assert [replaces(each, present) for each in taken] == [True] * len(taken)
    assert [replaces(each, present) for each in ignored] == [False] * len(ignored)
