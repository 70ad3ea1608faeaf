import json
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from ternmq_console.access.issued_token import (
    credentials_written,
    issue_token,
    print_token,
    token_row,
)
from ternmq_model.errors import IllegalName, UsageError
from ternmq_remoting.tls import Credentials
from ternmq_security.tokens import matches
from tests.support.certificates import authority

DAY_MS = 86_400_000


def test_issued_token_is_valid_for_its_lifetime() -> None:
    text, token = issue_token("ada", DAY_MS)
    assert text.startswith("tmq.ada.")
    assert matches(text, token)
    assert token.expires_at_ms == token.created_at_ms + DAY_MS
    assert token_row(token)["valid"] is True
    other, forever = issue_token("ada", None)
    assert other != text
    assert (forever.expires_at_ms, token_row(forever)["expires"]) == (0, "never")
    with pytest.raises(UsageError, match="at once"):
        issue_token("ada", 0)
    with pytest.raises(IllegalName):
        issue_token("a b", None)


def test_credentials_can_be_used_at_once(tmp_path: Path) -> None:
    text, _ = issue_token("ada", None)
    ca = authority(tmp_path / "größer").ca
    file = tmp_path / "ada.toml"
    with credentials_written(file, text, ca):
        pass
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Credentials.from_file(file) == Credentials(ca=ca, token=text)
    with pytest.raises(UsageError, match="already exists"), credentials_written(file, text, None):
        pass
    assert Credentials.from_file(file).token == text, "the file of another token stays"


def test_credentials_of_a_failed_change_are_removed(tmp_path: Path) -> None:
    text, _ = issue_token("ada", None)
    file = tmp_path / "ada.toml"
    with suppress(SystemExit), credentials_written(file, text, None):
        assert file.exists()
        raise SystemExit(2)
    assert not file.exists()
    for path, ca in ((file, tmp_path / "missing.pem"), (None, tmp_path / "ca.pem")):
        with pytest.raises(UsageError) as refused, credentials_written(path, text, ca):
            pass
        assert text not in str(refused.value)
    assert not file.exists()


def test_token_is_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    text, token = issue_token("ada", DAY_MS)
    print_token("ada", text, token, None, "table")
    shown = capsys.readouterr()
    assert shown.out == f"{text}\n"
    assert token.token_id in shown.err
    assert text not in shown.err
    print_token("ada", text, token, None, "json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["token"] == text
    assert shown.err == ""
    for output in ("table", "json"):
        print_token("ada", text, token, Path("ada.toml"), output)
        shown = capsys.readouterr()
        assert text not in shown.out + shown.err
        assert "ada.toml" in shown.out
