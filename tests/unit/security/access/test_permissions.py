from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model import permission
from ternmq_model.permission import (
    CLUSTER,
    NAME_CHARS_MAX,
    Action,
    Need,
    Resource,
    ResourceKind,
)
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.permissions import (
    MEMO_MAX,
    Permissions,
    deciding_grant,
    permissions_of,
)
from ternmq_security.access.user import User

NAMES = st.sampled_from(["a", "ab", "abc", "b"])
PATTERNS = st.one_of(
    st.sampled_from(["*", "cluster", "topic:*", "group:*"]),
    st.builds("{}:{}{}".format, st.sampled_from(["topic", "group"]), NAMES, st.sampled_from("* ")),
).map(lambda text: ResourcePattern.parse(text.strip()))
ACTIONS = st.sampled_from([Action.PUBLISH, Action.SUBSCRIBE, Action.ADMIN])
GRANT = st.builds(Grant, st.just("u"), st.sampled_from(Effect), ACTIONS, PATTERNS)
RESOURCES = st.one_of(
    st.just(CLUSTER),
    st.builds(Resource, st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP]), NAMES),
)
NEEDS = st.lists(st.tuples(ACTIONS, RESOURCES))
FIRST = first_administrator(AccessTable(), User("root", (), ("CN=root",)), "test").with_user(
    User("u")
)


def covers(grant: Grant, need: Need) -> bool:
    action, resource = need
    pattern = grant.pattern
    if grant.action is not action or pattern.kind not in (None, resource.kind):
        return False
    if pattern.kind is None or pattern.name == resource.name:
        return True
    return pattern.is_prefix and resource.name.startswith(pattern.name)


@given(st.lists(GRANT), NEEDS)
def test_decision_is_that_of_the_rule_and_stays(grants: list[Grant], needs: list[Need]) -> None:
    permissions = Permissions(grants, is_known=True)
    for need in needs + needs:
        effects = {each.effect for each in grants if covers(each, need)}
        assert permissions.allows(need) is (effects == {Effect.ALLOW})  # so that deny wins


def test_memo_is_bounded() -> None:
    every = Grant("u", Effect.ALLOW, Action.PUBLISH, ResourcePattern(None))
    permissions = Permissions([every], is_known=True)
    for each in range(MEMO_MAX * 2):
        assert permissions.allows((Action.PUBLISH, Resource(ResourceKind.TOPIC, f"t{each}")))
    assert permissions.allows(None)


def test_table_without_users_allows_everything() -> None:
    for user in ("anonymous", "x"):
        assert permissions_of(AccessTable(), user).allows((Action.ADMIN, CLUSTER))
        assert permissions_of(AccessTable(), user).allows(None)


def test_unknown_caller_may_only_what_is_granted_to_anonymous() -> None:
    table = first_administrator(AccessTable(), User("root", (), ("CN=root",)), "test")
    send = (Action.PUBLISH, Resource(ResourceKind.TOPIC, "a"))
    for user in ("anonymous", "x"):
        assert not permissions_of(table, user).allows(None)
        assert not permissions_of(table, user).allows(send)
    pattern = ResourcePattern.parse("topic:a")
    table = table.with_grant(Grant("anonymous", Effect.ALLOW, Action.PUBLISH, pattern))
    assert permissions_of(table).allows(send)
    assert permissions_of(table).allows(None)
    assert not permissions_of(table, "x").allows(send)
    assert permissions_of(table, "root").allows((Action.ADMIN, CLUSTER))


@given(st.lists(GRANT, unique=True), NEEDS)
def test_deciding_grant_explains_the_decision(grants: list[Grant], needs: list[Need]) -> None:
    table = replace(FIRST, grants=(*FIRST.grants, *grants))
    for need in needs:
        deciding = deciding_grant(table, "u", need)
        is_allowed = permissions_of(table, "u").allows(need)
        assert is_allowed is (deciding is not None and deciding.effect is Effect.ALLOW)
        assert deciding is None or (deciding in grants and covers(deciding, need))


def test_names_that_cannot_be_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    need_of = permission._need_of  # pyright: ignore[reportPrivateUsage]

    def counted(topic: str, action: Action) -> Need:
        computed.append(topic)
        return need_of(topic, action)

    monkeypatch.setattr(permission, "_need_of", counted)
    long = "x" * (NAME_CHARS_MAX + 1)
    permissions = Permissions((), is_known=True)
    for _ in range(2):
        assert not permissions.allows(permission.to_publish(long))
    assert computed == [long, long]
    assert len(permissions._memo) == 1  # pyright: ignore[reportPrivateUsage]
