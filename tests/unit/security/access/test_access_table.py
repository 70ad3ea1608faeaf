import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.errors import AccessNotFound, UsageError
from ternmq_model.json_checksum import add_checksum
from ternmq_model.permission import Action
from ternmq_security.access.access_table import (
    RECOVERY_VERSIONS,
    AccessTable,
    access_table_from_json,
    first_administrator,
    recovered,
)
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.table_choice import is_newer
from ternmq_security.access.user import TokenHash, User

TOKEN = TokenHash("t", b"s" * 16, b"d" * 32, 1 << 14, 8, 1, 1, 100)
FIRST = first_administrator(AccessTable(), User("root", (TOKEN,), ("CN=root",)), "test")


def grant(user: str, resource: str, action: Action = Action.ADMIN, *, deny: bool = False) -> Grant:
    effect = Effect.DENY if deny else Effect.ALLOW
    return Grant(user, effect, action, ResourcePattern.parse(resource))


def test_table_survives_a_round_trip_in_any_order_of_changes() -> None:
    one, two = User("b", (TOKEN,)), User("a", (), ("CN=ü",))
    table = FIRST.with_user(one).with_user(two).with_denied_certificate(serial="AB", subject="CN=x")
    other = FIRST.with_user(two).with_user(one).with_denied_certificate(serial="ab", subject="CN=x")
    assert table == other == access_table_from_json(table.to_json())
    assert table.digest == other.digest
    assert table.version == 4


def test_first_user_administers_every_resource() -> None:
    assert FIRST.grants == (grant("root", "*"),)
    with pytest.raises(UsageError, match="nobody could change"):
        AccessTable().with_user(User("a", (TOKEN,)))
    with pytest.raises(UsageError, match="nobody could change"):
        first_administrator(AccessTable(), User("a"), "test")
    with pytest.raises(UsageError, match="has users"):
        first_administrator(FIRST, User("a", (TOKEN,)), "test")


def test_last_administrator_stays() -> None:
    table = FIRST.with_user(User("b", (TOKEN,)))
    changes: tuple[Callable[[], AccessTable], ...] = (
        lambda: table.without_user("root"),
        lambda: FIRST.without_user("root"),
        lambda: table.without_grant(grant("root", "*")),
        lambda: table.with_grant(grant("root", "cluster", deny=True)),
        lambda: table.without_token("root", "t").with_denied_certificate(subject="CN=root"),
    )
    for change in changes:
        with pytest.raises(UsageError, match=r"nobody could change|last user"):
            change()
    assert table.with_grant(grant("b", "cluster")).without_user("root").grants_of("root") == ()


def test_token_is_rotated() -> None:
    second, third = (TokenHash(name, b"s" * 16, b"d" * 32, 1 << 14, 8, 1, 1) for name in "23")
    both = FIRST.with_token("root", second, 50)
    with pytest.raises(UsageError, match="at most 2"):
        both.with_token("root", third, 50)
    user = both.with_token("root", third, 100).user("root")
    assert user is not None
    assert user.tokens == (second, third)
    with pytest.raises(UsageError, match="no token"):
        both.without_token("root", "x")


def test_change_of_something_unknown_is_refused() -> None:
    changes: tuple[Callable[[], AccessTable], ...] = (
        lambda: FIRST.without_user("x"),
        lambda: FIRST.with_grant(grant("x", "*")),
        lambda: FIRST.without_grant(grant("root", "cluster")),
        lambda: FIRST.with_user(User("x", (), ("CN=root",))),
        lambda: FIRST.with_user(User("root")),
    )
    for change in changes:
        with pytest.raises(UsageError):
            change()
    assert FIRST.with_grant(grant("root", "*")) is FIRST


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("version", "1"),
        ("version", True),
        ("version", -1),
        ("users", {}),
        ("users", [{"name": "a"}]),
        ("users", [1]),
        ("grants", [["x", "allow", "admin", "*"]]),
        ("grants", [["root", "may", "admin", "*"]]),
        ("grants", [["root", "allow", "admin"]]),
        ("grants", [["root", "allow", "admin", "topic:"]]),
        ("denied_serials", [1]),
        ("extra", 1),
    ],
)
def test_wrong_form_is_refused(key: str, value: object) -> None:
    content = json.loads(FIRST.to_json())
    content = {each: content[each] for each in content if each != "crc32"} | {key: value}
    with pytest.raises(ValueError, match=r"."):
        access_table_from_json(add_checksum(json.dumps(content)))


def test_damage_is_refused() -> None:
    with pytest.raises(ValueError, match=r"."):
        access_table_from_json(FIRST.to_json().replace(b"root", b"toor"))


def test_higher_version_is_newer_then_the_higher_digest() -> None:
    two, three = FIRST.with_user(User("a")), FIRST.with_user(User("b"))
    assert is_newer(two, FIRST)
    assert not is_newer(FIRST, two)
    assert not is_newer(two, two)
    assert is_newer(two, three) != is_newer(three, two)


SUBJECTS = st.lists(st.text(min_size=1, max_size=30), max_size=5, unique=True)
HASHES = st.builds(
    TokenHash,
    st.text("0123456789abcdef", min_size=1, max_size=8),
    st.binary(min_size=16, max_size=64),
    st.binary(min_size=32, max_size=32),
    *(st.just(each) for each in (1 << 14, 8, 1)),
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 60),
)


@given(HASHES, SUBJECTS, SUBJECTS, st.lists(st.integers(0, 1 << 160), max_size=5))
def test_json_has_the_whole_table(
    token: TokenHash, subjects: list[str], denied: list[str], serials: list[int]
) -> None:
    table = FIRST.with_user(User("a", (token,), tuple(each + "!" for each in subjects)))
    for subject, serial in zip(denied, serials, strict=False):
        table = table.with_denied_certificate(subject=subject, serial=f"{serial:x}")
    again = access_table_from_json(table.to_json())
    assert (again, again.digest) == (table, table.digest)


def test_table_is_limited() -> None:
    grants = tuple(grant("root", f"topic:t{number}") for number in range(100_001))
    with pytest.raises(UsageError, match="at most 100000"):
        AccessTable(1, FIRST.users, grants)
    with pytest.raises(UsageError, match="at most 10000"):
        AccessTable(1, tuple(User(f"u{number}") for number in range(10_001)))
    with pytest.raises(UsageError, match="bytes, at most"):
        AccessTable(1, FIRST.users, grants[:90_000]).to_json()
    with pytest.raises(ValueError, match="bytes: a table has at most"):
        access_table_from_json(b" " * (4 << 20))


def test_subjects_of_a_user_are_changed() -> None:
    table = FIRST.with_subjects("root", added=("CN=a", "CN=root"), removed=())
    assert table.existing("root").subjects == ("CN=root", "CN=a")
    assert table.with_subjects("root", added=("CN=a",)) is table
    assert table.with_subjects("root", removed=("CN=root",)).existing("root").subjects == ("CN=a",)
    with pytest.raises(AccessNotFound, match="no subject 'CN=b'"):
        table.with_subjects("root", removed=("CN=b",))
    with pytest.raises(UsageError, match="same subject"):
        table.with_user(User("b", (TOKEN,))).with_subjects("b", added=("CN=a",))
    no_token = FIRST.without_token("root", "t")
    with pytest.raises(UsageError, match="nobody could change"):
        no_token.with_subjects("root", removed=("CN=root",))


def test_certificate_is_denied_and_allowed_again() -> None:
    denying = FIRST.with_denied_certificate(subject="CN=x", serial="1F")
    assert denying.with_denied_certificate(subject="CN=x", serial="1f") is denying
    assert not denying.without_denied_certificate(serial="1f").denies("", 0x1F)
    for words in ({"subject": "CN=y"}, {"serial": "2"}, {"subject": "1f"}):
        with pytest.raises(AccessNotFound, match="not denied"):
            denying.without_denied_certificate(**words)


def test_recovered_administrator_has_one_token_and_wins_over_copies() -> None:
    lost = FIRST.with_user(User("b", (TOKEN,))).with_grant(grant("b", "topic:x"))
    for name in ("root", "b", "new"):
        table = recovered(lost, name, TOKEN, "test")
        assert (table.existing(name).tokens, table.existing(name).subjects) == ((TOKEN,), ())
        assert table.grants_of(name) == (grant(name, "*"),)
        table.check_administrator()
        assert is_newer(table, lost)
        assert table.version == lost.version + RECOVERY_VERSIONS
    # A denial would have kept the user from being an administrator.
    denied = lost.with_grant(grant("b", "cluster", deny=True))
    recovered(denied, "b", TOKEN, "test").check_administrator()
    with pytest.raises(UsageError, match="no users"):
        recovered(AccessTable(), "root", TOKEN, "test")
