import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ternmq_console.main import ternmq
from ternmq_remoting.tls import Credentials
from ternmq_security.tokens import matches
from tests.support.access_admin import AccessAdmin, administered


@pytest.fixture
def admin() -> Generator[AccessAdmin]:
    with administered() as admin:
        yield admin


@pytest.fixture
def root(admin: AccessAdmin) -> AccessAdmin:
    """Return the administration of a cluster whose administrator has a certificate."""
    run("create root --no-token --subject CN=root --yes")
    return admin


def run(words: str, *more: str, code: int = 0, stdin: str = "") -> Result:
    arguments = ["user", *words.split(), *more]
    done = CliRunner().invoke(ternmq, arguments, input=stdin, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def json_of(words: str) -> Any:
    return json.loads(run(words, "--json").stdout)


def test_first_user_becomes_administrator_once_that_is_confirmed(admin: AccessAdmin) -> None:
    assert json_of("list") == []
    refused = run("create root", stdin="n\n", code=1)
    assert "brokers and slaves included" in " ".join(refused.stderr.split())
    assert refused.stdout == ""
    assert admin.sent == 0
    shown = run("create root", stdin="y\n").stdout
    [token] = admin.table.existing("root").tokens
    assert matches(shown.strip(), token)
    admin.table.check_administrator()
    assert "exists" in run("create root", code=2).stderr
    assert "Go on?" not in run("create shop").stderr


def test_user_without_token_has_its_certificates(root: AccessAdmin) -> None:
    row = json_of("create shop --no-token --subject CN=shop --subject CN=shop,O=B")
    assert (row["tokens"], row["subjects"]) == ([], ["CN=shop", "CN=shop,O=B"])
    changed = json_of("subject shop --add CN=new --remove CN=shop")
    assert changed["subjects"] == ["CN=shop,O=B", "CN=new"]
    assert run("subject shop --remove CN=shop", code=3).stdout == ""
    assert "same subject" in run("subject shop --add CN=root", code=2).stderr
    for words in ("--expires 1d", "--credentials-file x.toml"):
        assert "need a token" in run(f"create other --no-token {words}", code=2).stderr
    assert [each["user"] for each in json_of("list")] == ["root", "shop"]
    assert root.table.existing("shop").tokens == ()


def test_second_token_is_made_and_the_first_one_revoked(root: AccessAdmin, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.toml" for number in (1, 2, 3)]
    ids: list[str] = []
    for verb, file in zip(("create", "rotate"), files, strict=False):
        made = json_of(f"{verb} shop --expires 90d --credentials-file {file}")
        assert made["credentials_file"] == str(file)
        ids.append(made["token_id"])
    tokens = root.table.existing("shop").tokens
    assert [each.token_id for each in tokens] == ids
    assert all(map(matches, (Credentials.from_file(file).token for file in files[:2]), tokens))
    refused = run(f"rotate shop --credentials-file {files[2]}", code=2)
    assert "at most 2 tokens" in refused.stderr
    assert not files[2].exists()
    left = json_of(f"revoke shop {ids[0]}")["tokens"]
    assert [each["id"] for each in left] == [ids[1]]
    assert left[0]["valid"]
    run(f"revoke shop {ids[0]}", code=3)
    for verb in ("rotate", "show", "remove"):
        run(f"{verb} none", code=3)


def test_removed_user_is_gone_and_the_last_administrator_stays(root: AccessAdmin) -> None:
    run("create shop")
    assert json_of("remove shop") == {"removed": "shop", "users": 1}
    refused = run("remove root", code=2)
    assert "admin on the cluster" in refused.stderr or "last user" in refused.stderr
    assert root.table.user("root") is not None


def test_certificates_are_denied_until_they_are_undenied(root: AccessAdmin) -> None:
    before = root.sent
    assert json_of("deny-certificate") == []
    assert root.sent == before, "a list changes nothing"
    rows = json_of("deny-certificate --subject CN=x --serial 1F:02")
    assert rows == [
        {"kind": "subject", "denied": "CN=x"},
        {"kind": "serial", "denied": "1f02"},
    ]
    assert json_of("undeny-certificate --serial 1f02") == rows[:1]
    run("undeny-certificate --serial 1f02", code=3)
    run("undeny-certificate", code=2)
    run("deny-certificate --serial x", code=2)
    assert "must keep admin" in run("deny-certificate --subject CN=root", code=2).stderr
