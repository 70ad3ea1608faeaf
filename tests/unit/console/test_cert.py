"""Output and files of `ternmq cert`."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from ternmq_console.certificate_authority import make_authority, read_certificate, write_pair
from ternmq_console.main import ternmq
from tests.support.certificates import authority

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


def invoke(*words: str) -> Result:
    return CliRunner().invoke(ternmq, words, catch_exceptions=False)


def text_of(*words: str) -> str:
    done = invoke(*words)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def json_of(*words: str) -> Any:
    return json.loads(text_of(*words, "--json"))


def days_left(path: Path) -> float:
    return (read_certificate(path).not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)


def test_authority_is_made_once(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "pki"))
    made = json_of("cert", "ca", *out, "--name", "My CA", "--days", "7")
    assert (made["subject"], made["names"]) == ("CN=My CA", [])
    assert (made["certificate"], made["key"]) == (
        str(tmp_path / "pki" / "ca.pem"),
        str(tmp_path / "pki" / "ca-key.pem"),
    )
    assert days_left(tmp_path / "pki" / "ca.pem") == pytest.approx(7, abs=0.01)
    again = invoke("cert", "ca", *out)
    assert (again.exit_code, again.stdout) == (2, "")
    assert re.fullmatch(r"ternmq: \S+ca\.pem and \S+ca-key\.pem already there.*\n", again.stderr)
    assert json_of("cert", "show", made["certificate"])["serial"] == made["serial"]
    assert json_of("cert", "ca", *out, "--force")["serial"] != made["serial"]


def test_certificate_is_issued_with_its_row_and_without_its_key(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    words = ("cert", "issue", "broker_a", "--out", str(tmp_path / "a"), "--ca", str(ca.folder))
    told = text_of(*words, "--host", "mq.example", "--host", "10.0.0.1")
    made = read_certificate(tmp_path / "a" / "broker_a.pem")
    made.verify_directly_issued_by(read_certificate(ca.ca))
    rows = dict(re.split(" {2,}", line, maxsplit=1) for line in told.splitlines())
    assert rows == {
        "subject": "CN=broker_a",
        "serial": f"{made.serial_number:x}",
        "names": "broker_a, localhost, 127.0.0.1, ::1, mq.example, 10.0.0.1",
        "expires": f"{made.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
        "certificate": str(tmp_path / "a" / "broker_a.pem"),
        "key": str(tmp_path / "a" / "broker_a-key.pem"),
    }
    again = invoke(*words)
    assert (again.exit_code, len(again.stderr.splitlines())) == (2, 1)
    assert json_of(*words, "--force")["serial"] != rows["serial"]


@pytest.mark.parametrize(
    ("options", "uses"),
    [
        ((), [CLIENT, SERVER]),
        (("--client",), [CLIENT]),
        (("--server",), [SERVER]),
        (("--client", "--server"), [CLIENT, SERVER]),
    ],
)
def test_certificate_has_the_uses_of_the_options(
    options: tuple[str, ...], uses: list[x509.ObjectIdentifier], tmp_path: Path
) -> None:
    authority(tmp_path)
    text_of("cert", "issue", "a", "--out", str(tmp_path), *options)
    made = read_certificate(tmp_path / "a.pem")
    assert list(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == uses


def test_shown_certificate_has_its_issuer_and_dates(tmp_path: Path) -> None:
    ca = authority(tmp_path, "My CA")
    at = datetime(2026, 11, 20, 23, 9, 7, tzinfo=UTC)
    made = ca.issue("shop", hosts=("::1",), not_before=at, not_after=at + timedelta(hours=1))
    assert json_of("cert", "show", str(made.cert)) == {
        "subject": "CN=shop",
        "serial": f"{made.serial:x}",
        "names": ["shop", "::1"],
        "expires": "2026-11-21T00:09:07Z",
        "valid_from": "2026-11-20T23:09:07Z",
        "issuer": "CN=My CA",
    }


def test_expired_authority_is_refused(tmp_path: Path) -> None:
    at = datetime(2026, 11, 20, 23, 9, 7, tzinfo=UTC)
    write_pair(make_authority("CA", not_before=at, not_after=at), tmp_path, "ca")
    done = invoke("cert", "issue", "a", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr == f"ternmq: the CA {tmp_path}/ca.pem expired at 2026-11-20T23:09:07Z\n"
    assert not (tmp_path / "a-key.pem").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("issue ../a --out {0}", 2, "the name '../a' must have"),
        ("issue a --out {0} --host a:1", 2, "'a:1' is neither a DNS name nor an IP address"),
        ("issue a --out {0}/none", 3, "no CA in"),
        ("issue a --out {0} --days 0", 2, "--days"),
        ("show {0}/none.pem", 3, "none.pem"),
        ("show {0}/ca-key.pem", 2, "ca-key.pem has no readable certificate"),
    ],
)
def test_error_is_told_in_one_line(words: str, code: int, told: str, tmp_path: Path) -> None:
    authority(tmp_path)
    done = invoke("cert", *(word.format(tmp_path) for word in words.split()))
    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr.splitlines()[-1]


WITHOUT = """
import sys
sys.modules["cryptography"] = None
from ternmq_console.main import main
main()
"""


@pytest.mark.parametrize("words", ["ca --out d", "issue a --out d", "show a.pem"])
def test_missing_package_is_one_line(words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, "cert", *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("ternmq: ")
    assert "ternmq[security]" in line
    assert not list(tmp_path.iterdir())


def test_help_needs_no_package(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, "cert", "issue", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
