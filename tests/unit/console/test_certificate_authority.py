"""Certificates as other programs see them, and refusals of files that would make useless ones."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from ternmq_console.certificate_authority import (
    KeyPair,
    alternative_name,
    alternative_names,
    issue_certificate,
    make_authority,
    read_authority,
    read_certificate,
    subject_text,
    write_pair,
)
from ternmq_model.errors import UsageError

NOW = datetime(2026, 11, 20, 23, 9, 7, tzinfo=UTC)
DAY = timedelta(days=1)


def new_authority(*, not_before: datetime = NOW - DAY, not_after: datetime = NOW + DAY) -> KeyPair:
    return make_authority("Test CA", not_before=not_before, not_after=not_after)


def issued(
    authority: KeyPair,
    name: str = "broker_a",
    *hosts: str,
    not_after: datetime = NOW + DAY,
    is_client: bool = True,
    is_server: bool = True,
) -> x509.Certificate:
    made, _ = issue_certificate(
        authority,
        name,
        hosts=hosts,
        not_before=NOW,
        not_after=not_after,
        is_client=is_client,
        is_server=is_server,
    )
    return made


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_certificate_has_its_name_its_hosts_and_its_signer() -> None:
    authority = new_authority()
    made = issued(authority, "broker_a", "localhost", "10.0.0.1", "::1", "localhost", "*.example")
    assert subject_text(made.subject) == "CN=broker_a"
    assert subject_text(made.issuer) == "CN=Test CA"
    names = ["broker_a", "localhost", "10.0.0.1", "::1", "*.example"]
    assert alternative_names(made) == names
    made.verify_directly_issued_by(authority[0])
    assert (made.not_valid_before_utc, made.not_valid_after_utc) == (NOW, NOW + DAY)


def test_certificate_ends_no_later_than_its_authority() -> None:
    assert issued(new_authority(), not_after=NOW + 9 * DAY).not_valid_after_utc == NOW + DAY


@pytest.mark.parametrize(
    ("is_client", "is_server", "uses"),
    [
        (True, True, [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
        (True, False, [ExtendedKeyUsageOID.CLIENT_AUTH]),
        (False, True, [ExtendedKeyUsageOID.SERVER_AUTH]),
    ],
)
def test_certificate_is_for_the_wanted_uses(
    is_client: bool, is_server: bool, uses: list[x509.ObjectIdentifier]
) -> None:
    made = issued(new_authority(), is_client=is_client, is_server=is_server)
    assert list(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == uses


def test_certificate_without_a_use_is_refused() -> None:
    with pytest.raises(UsageError, match="for clients, for servers, or for both"):
        issued(new_authority(), is_client=False, is_server=False)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "a/b", "../a", "a b", "é", "ca", "a-key", "a" * 65, "a\n"]
)
def test_name_that_is_no_file_name_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="the name"):
        issued(new_authority(), name)


@pytest.mark.parametrize("host", ["", "a b", "127.0.0.1:9876", "[::1]", "é.example", "a..b", "a\n"])
def test_host_that_is_no_name_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="neither a DNS name nor an IP address"):
        issued(new_authority(), "a", host)


@pytest.mark.parametrize("name", ["", "a" * 65])
def test_authority_needs_a_name_that_fits(name: str) -> None:
    with pytest.raises(UsageError, match="1 to 64 characters"):
        make_authority(name, not_before=NOW, not_after=NOW + DAY)


def test_certificate_passes_the_rules_of_web_servers() -> None:
    authority = new_authority()
    builder = PolicyBuilder().store(Store([authority[0]])).time(NOW)
    for name in ("localhost", "10.0.0.1"):
        verifier = builder.build_server_verifier(alternative_name(name))
        verifier.verify(issued(authority, "broker-a", "localhost", "10.0.0.1"), [])
        with pytest.raises(VerificationError):
            verifier.verify(issued(new_authority(), "broker-a", "localhost", "10.0.0.1"), [])


def test_key_is_private_and_files_are_replaced_only_on_demand(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    first, second = new_authority(), new_authority()
    write_pair(first, folder, "ca")
    with pytest.raises(UsageError, match=r"ca\.pem and .*ca-key\.pem already there: --force"):
        write_pair(second, folder, "ca")
    assert read_authority(folder, now=NOW)[0] == first[0]
    (folder / "ca-key.pem").chmod(0o644)
    write_pair(second, folder, "ca", replace=True)
    assert read_authority(folder, now=NOW)[0] == second[0]
    assert mode_of(folder) == 0o700
    assert {path.name: mode_of(path) for path in folder.iterdir()} == {
        "ca.pem": 0o644,
        "ca-key.pem": 0o600,
    }


def test_chain_is_read_to_its_first_certificate(tmp_path: Path) -> None:
    authority = new_authority()
    made = issued(authority)
    pem = b"".join(one.public_bytes(Encoding.PEM) for one in (made, authority[0]))
    (tmp_path / "chain.pem").write_bytes(b"text before\n" + pem)
    assert read_certificate(tmp_path / "chain.pem") == made


def test_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"a\.pem has no readable certificate"):
        read_certificate(tmp_path / "a.pem")


def no_certificate(folder: Path) -> None:
    (folder / "ca.pem").unlink()


def no_key(folder: Path) -> None:
    (folder / "ca-key.pem").unlink()


def broken_key(folder: Path) -> None:
    (folder / "ca-key.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nsecret\n")


def locked_key(folder: Path) -> None:
    _, key = new_authority()
    lock = BestAvailableEncryption(b"secret")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
    (folder / "ca-key.pem").write_bytes(pem)


def key_of_another_kind(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "ca-key.pem").write_bytes(pem)


def foreign_key(folder: Path) -> None:
    write_pair(new_authority(), folder / "other", "ca")
    (folder / "other" / "ca-key.pem").replace(folder / "ca-key.pem")


def expired(folder: Path) -> None:
    write_pair(new_authority(not_after=NOW - timedelta(seconds=1)), folder, "ca", replace=True)


def unborn(folder: Path) -> None:
    write_pair(new_authority(not_before=NOW + timedelta(seconds=1)), folder, "ca", replace=True)


def no_authority(folder: Path) -> None:
    made = issue_certificate(
        new_authority(), "a", hosts=(), not_before=NOW - DAY, not_after=NOW + DAY
    )
    write_pair(made, folder, "ca", replace=True)


@pytest.mark.parametrize(
    ("spoil", "error", "told"),
    [
        (no_certificate, FileNotFoundError, r"no CA in \S+: \S+ca\.pem missing"),
        (no_key, FileNotFoundError, r"no CA in \S+: \S+ca-key\.pem missing"),
        (broken_key, UsageError, r"ca-key\.pem has no readable private key"),
        (locked_key, UsageError, r"ca-key\.pem has no readable private key without a password"),
        (key_of_another_kind, UsageError, r"ca-key\.pem has no elliptic curve key"),
        (foreign_key, UsageError, r"ca-key\.pem belongs to another certificate than \S+ca\.pem"),
        (no_authority, UsageError, r"ca\.pem is no certificate of a CA"),
        (expired, UsageError, r"ca\.pem expired at 2026-11-20T23:09:06Z"),
        (unborn, UsageError, r"ca\.pem is valid from 2026-11-20T23:09:08Z"),
    ],
)
def test_authority_that_cannot_sign_is_refused(
    spoil: Callable[[Path], None], error: type[Exception], told: str, tmp_path: Path
) -> None:
    write_pair(new_authority(), tmp_path, "ca")
    spoil(tmp_path)
    with pytest.raises(error, match=told) as raised:
        read_authority(tmp_path, now=NOW)
    assert "secret" not in str(raised.value)


def test_name_without_alternative_names_has_none() -> None:
    assert alternative_names(new_authority()[0]) == []


def test_subject_is_written_as_openssl_does() -> None:
    parts = {
        NameOID.COUNTRY_NAME: "DE",
        NameOID.ORGANIZATION_NAME: 'a,b=c\\+d "é<>#;/\n',
        NameOID.SURNAME: " s ",
        NameOID.EMAIL_ADDRESS: "a@b",
    }
    name = x509.Name([x509.NameAttribute(oid, text) for oid, text in parts.items()])
    told = r"emailAddress=a@b,SN=\ s\ ,O=a\,b=c\\\+d \"\C3\A9\<\>#\;/\0A,C=DE"
    assert subject_text(name) == told


WITHOUT = """
import sys
sys.modules["cryptography"] = None
try:
    import ternmq_console.certificate_authority
except ImportError as error:
    print(error)
"""


def test_missing_package_is_named_with_its_extra() -> None:
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pip install '/path/to/ternmq[security]'" in done.stdout
