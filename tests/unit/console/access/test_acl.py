import json
from collections.abc import Generator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ternmq_console.main import ternmq
from ternmq_security.access.access_table import first_administrator
from ternmq_security.access.user import User
from tests.support.access_admin import AccessAdmin, administered


@pytest.fixture
def admin() -> Generator[AccessAdmin]:
    with administered() as admin:
        yield admin


@pytest.fixture
def users(admin: AccessAdmin) -> AccessAdmin:
    """Return the administration of a cluster with the users root and shop."""
    root = User("root", (), ("CN=root",))
    admin.table = first_administrator(admin.table, root, "test").with_user(User("shop"))
    return admin


def run(words: str, *more: str, code: int = 0) -> Result:
    arguments = ["acl", *words.split(), *more]
    done = CliRunner().invoke(ternmq, arguments, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def json_of(words: str, code: int = 0) -> Any:
    return json.loads(run(words, "--json", code=code).stdout)


def row(user: str, effect: str, action: str, resource: str) -> dict[str, str]:
    return {"user": user, "effect": effect, "action": action, "resource": resource}


def test_permissions_are_granted_listed_and_revoked(users: AccessAdmin) -> None:
    granted = row("shop", "allow", "publish", "topic:ord*")
    assert json_of("grant shop publish topic:ord*") == [granted]
    run("grant shop publish topic:ord*")
    assert users.sent == 1, "it is granted"
    run("grant shop publish topic:orders --deny")
    assert json_of("list --user shop") == [
        granted,
        row("shop", "deny", "publish", "topic:orders"),
    ]
    assert row("root", "allow", "admin", "*") in json_of("list")
    run("revoke shop publish topic:orders", code=3)
    run("revoke shop publish topic:orders --deny")
    assert json_of("revoke shop publish topic:ord*") == []
    assert "must keep admin" in run("revoke root admin *", code=2).stderr


def test_permissions_of_anonymous_need_no_user(admin: AccessAdmin) -> None:
    run("grant anonymous publish *")
    run("grant shop publish *", code=3)
    assert json_of("list --user anonymous") == [row("anonymous", "allow", "publish", "*")]
    run("list --user shop", code=3)
    run("revoke anonymous publish *")
    assert not admin.table.grants


def test_decision_has_its_reason(users: AccessAdmin) -> None:
    run("grant shop publish topic:ord*")
    run("grant shop publish topic:orders --deny")
    for words, is_allowed, reason in (
        ("shop publish topic:orders", False, "shop deny publish topic:orders"),
        ("shop publish topic:ord1", True, "shop allow publish topic:ord*"),
        ("shop subscribe topic:ord1", False, "no permission is about this"),
        ("shop publish topic:RMQ_SYS_TRACE_TOPIC", True, "every known identity may do this"),
        ("anonymous publish topic:RMQ_SYS_TRACE_TOPIC", False, "every known identity may do this"),
        ("root admin cluster", True, "root allow admin *"),
        ("root admin topic:TBW102", True, "root allow admin *"),
        ("root admin group:g", True, "root allow admin *"),
        ("root replicate cluster", False, "no permission is about this"),
    ):
        found = json_of(f"test {words}", code=0 if is_allowed else 1)
        assert (found["allowed"], found["reason"]) == (is_allowed, reason), words
    for words in ("none publish topic:orders", "none admin cluster"):
        run(f"test {words}", code=3)
    assert users.sent == 2


def test_cluster_without_users_allows_everything(admin: AccessAdmin) -> None:
    found = json_of("test shop admin cluster")
    assert (found["allowed"], found["reason"].partition(":")[0]) == (True, "there are no users")
    assert admin.sent == 0


@pytest.mark.parametrize(
    "words",
    [
        "grant shop publish orders",
        "grant shop publish topic:",
        "grant shop publish topic:%DLQ%readers",
        "grant shop replicate topic:orders",
        "grant shop read topic:orders",
        "grant no@good publish topic:orders",
        "revoke shop publish queue:1",
        "test shop publish *",
        "test shop publish topic:ord*",
        "test shop replicate topic:orders",
    ],
)
def test_bad_words_are_refused_before_the_cluster_is_asked(words: str, users: AccessAdmin) -> None:
    done = run(words, code=2)
    assert done.stderr.splitlines()[-1]
    assert users.sent == 0
