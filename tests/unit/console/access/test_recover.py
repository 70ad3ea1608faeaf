"""Recovery of an administrator, in the data directory of a NameServer that does not run."""

import json
import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ternmq_console.broker.epoch_directories import lock_nameserver
from ternmq_console.main import ternmq
from ternmq_remoting.tls import Credentials
from ternmq_runtime.table_store import save_table
from ternmq_security.access.access_table import (
    RECOVERY_VERSIONS,
    AccessTable,
    access_table_from_json,
    first_administrator,
)
from ternmq_security.access.user import User
from ternmq_security.access_store import FILE_NAME
from ternmq_security.tokens import matches

LOST = first_administrator(AccessTable(), User("root", (), ("CN=root",)), "test").with_user(
    User("shop")
)


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """Return the data directory of a NameServer that has run."""
    with ExitStack() as stack:
        (tmp_path / "nameserver.lock").mkdir()
        lock_nameserver(tmp_path, stack)
    save_table(tmp_path / FILE_NAME, LOST)
    return tmp_path


def invoke(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(ternmq, words, input=stdin, catch_exceptions=False)


def table_of(data: Path) -> AccessTable:
    return access_table_from_json((data / FILE_NAME).read_bytes())


def test_new_administrator_is_added(names: Path) -> None:
    done = invoke("user", "recover", "ada", "--data", str(names), "--expires", "1d", "--json")
    assert done.exit_code == 0, done.stderr
    assert "passes the change on" in done.stderr
    table = table_of(names)
    [token] = table.existing("ada").tokens
    assert matches(json.loads(done.stdout)["token"], token)
    assert token.expires_at_ms
    assert table.version == LOST.version + RECOVERY_VERSIONS
    assert table.existing("root") == LOST.existing("root")
    assert stat.S_IMODE((names / FILE_NAME).stat().st_mode) == 0o600


def test_existing_user_is_replaced_after_a_confirmation(names: Path, tmp_path: Path) -> None:
    words = ("user", "recover", "root", "--data", str(names))
    done = invoke(*words, "--credentials-file", str(tmp_path / "root.toml"), stdin="n\n")
    assert done.exit_code == 1
    assert "Replace the user root" in done.stderr
    assert table_of(names) == LOST
    assert not (tmp_path / "root.toml").exists()
    done = invoke(*words, "--credentials-file", str(tmp_path / "root.toml"), stdin="y\n")
    assert done.exit_code == 0, done.stderr
    assert table_of(names).existing("root").subjects == ()
    text = Credentials.from_file(tmp_path / "root.toml").token
    assert text not in done.output
    assert matches(text, table_of(names).existing("root").tokens[0])


def test_running_nameserver_and_strange_directories_are_refused(
    names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("user", "recover", "ada", "--data")
    with ExitStack() as stack:
        lock_nameserver(names, stack)
        done = invoke(*words, str(names))
        assert done.exit_code == 1
        assert "in use" in done.stderr
    done = invoke(*words, str(tmp_path / "nowhere"))
    assert done.exit_code == 3
    assert invoke("user", "recover", "a b", "--data", str(names)).exit_code == 2
    assert table_of(names) == LOST
    (names / FILE_NAME).unlink()
    (names / f"{FILE_NAME}.bak").unlink()
    done = invoke(*words, str(names))
    assert done.exit_code == 2
    assert "there are no users" in done.stderr
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "belongs to the user" in invoke(*words, str(names)).stderr
