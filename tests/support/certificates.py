"""Certificates of authorities that tests make, by the functions of `ternmq cert`."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ternmq_console.certificate_authority import (
    CA_NAME,
    CLOCK_SKEW,
    KeyPair,
    certificate_path,
    issue_certificate,
    key_path,
    make_authority,
    subject_text,
    write_pair,
)

VALID_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate in files. `subject` is the text of gRPC's `x509_subject`."""

    cert: Path
    key: Path
    serial: int
    subject: str


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority, which writes everything into `folder`."""

    folder: Path
    pair: KeyPair

    @property
    def ca(self) -> Path:
        """Certificate of the authority: what peers trust."""
        return certificate_path(self.folder, CA_NAME)

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = ("127.0.0.1", "localhost"),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        is_client: bool = True,
        is_server: bool = True,
    ) -> Certificate:
        """Write a certificate for the user or broker `name`, over the one before of that name.

        It is valid for a day from now, unless told otherwise: an expired one has a `not_after` in
        the past.
        """
        not_after = not_after or datetime.now(UTC) + VALID_FOR
        not_before = not_before or min(datetime.now(UTC), not_after - VALID_FOR) - CLOCK_SKEW
        pair = issue_certificate(
            self.pair,
            name,
            hosts=hosts,
            not_before=not_before,
            not_after=not_after,
            is_client=is_client,
            is_server=is_server,
        )
        write_pair(pair, self.folder, name, replace=True)
        return Certificate(
            cert=certificate_path(self.folder, name),
            key=key_path(self.folder, name),
            serial=pair[0].serial_number,
            subject=subject_text(pair[0].subject),
        )


def authority(folder: Path, name: str = "Test CA") -> Authority:
    """Make an authority in a folder of its own. Another one is foreign, whatever its name."""
    now = datetime.now(UTC)
    pair = make_authority(name, not_before=now - 2 * VALID_FOR, not_after=now + 2 * VALID_FOR)
    write_pair(pair, folder, CA_NAME)
    return Authority(folder, pair)


def tls_words(trusted: Authority, name: str) -> tuple[object, ...]:
    """Return words of the command line with which a service uses TLS and asks for certificates."""
    own = trusted.issue(name)
    return (
        *("--tls-cert", own.cert, "--tls-key", own.key),
        *("--tls-ca", trusted.ca, "--tls-client-auth", "required"),
    )


def credentials_file(trusted: Authority, name: str, token: str = "") -> Path:
    """Write the file of a client's credentials, with a new certificate for `name`."""
    own = trusted.issue(name)
    file = trusted.folder / f"{name}.toml"
    file.touch(0o600)
    text = f'ca = "{trusted.ca}"\ncert = "{own.cert}"\nkey = "{own.key}"\n'
    file.write_text(f'{text}token = "{token}"\n' if token else text)
    return file
