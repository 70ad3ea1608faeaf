"""Settings of TLS and identity: of a service's port, and of connections that a process opens."""

import os
import re
import ssl
import tomllib
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ternmq_model.errors import ConfigError

CREDENTIALS_VARIABLE: Final = "TERNMQ_CREDENTIALS_FILE"
"""Variable with the path of the credentials of a process."""


HIDDEN: Final = "..."
"""Text in place of a secret."""

_TOKEN: Final = re.compile(r"tmq\.[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\.[A-Za-z0-9_-]{16,86}", re.ASCII)
_OF_OTHERS: Final = 0o077


class ClientAuth(StrEnum):
    """Certificates of callers."""

    NONE = "none"
    """No caller is asked for a certificate."""

    REQUIRED = "required"
    """Callers without a certificate of the CA cannot connect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Identity that a process shows, and the authorities that it trusts, when it connects.

    With a CA every connection of the process uses TLS, and without one none does. The PEM files are
    read again for each new connection, so a renewed certificate needs no restart. A token leaves
    this machine over TLS alone: without it, connecting to another host is refused.

    Raises:
        ConfigError: A file cannot be read or used; names it. The token has another form.
    """

    ca: Path | None = None
    """Certificates of the authorities that services are verified by; None = connections without
    TLS."""

    cert: Path | None = None
    """Certificate of this process, with its chain; None = it shows none."""

    key: Path | None = None
    """Private key of `cert`."""

    token: str = field(default="", repr=False)
    """Token of a user, as `ternmq user create` shows it once; empty = none. A token counts before
    the certificate."""

    def __post_init__(self) -> None:
        if self.token and _TOKEN.fullmatch(self.token) is None:
            raise ConfigError("credentials.token", HIDDEN, "must be tmq.USER.SECRET")
        for name in ("ca", "cert", "key"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Path(getattr(self, name)).absolute())
        if self.cert is not None and self.ca is None:
            raise ConfigError("credentials.cert", str(self.cert), "needs credentials.ca, too")
        check_pair("credentials", self.cert, self.key)
        check_authority("credentials", self.ca)

    @classmethod
    def from_file(cls, path: Path | str) -> "Credentials":
        """Return the credentials in a TOML file with the fields of this class as keys.

        Relative paths in the file begin at its folder. A file with a token must be for its owner
        alone (mode 0600).

        Raises:
            ConfigError: The file cannot be read, or has another form; a secret is not repeated.
        """
        path = Path(path)
        names = ("ca", "cert", "key", "token")
        try:
            found: dict[str, Any] = tomllib.loads(path.read_text())
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            raise ConfigError("credentials", str(path), reason) from error
        except ValueError as error:  # the text of a decoder repeats bytes of the file
            raise ConfigError("credentials", str(path), "is no TOML file") from error
        if unknown := sorted(found.keys() - set(names)):
            rule = f"has an unknown key {unknown[0]!r}; known are {', '.join(names)}"
            raise ConfigError("credentials", str(path), rule)
        if wrong := [name for name, value in found.items() if not isinstance(value, str)]:
            raise ConfigError("credentials", str(path), f"{wrong[0]} must be a text")
        token = found.pop("token", "")
        if token and path.stat().st_mode & _OF_OTHERS:
            rule = "has a token, and others may read it: its mode must be 0600"
            raise ConfigError("credentials", str(path), rule)
        paths = {name: path.parent / value for name, value in found.items()}
        return cls(**paths, token=token)

    @property
    def has_identity(self) -> bool:
        """True with a token or a certificate."""
        return bool(self.token) or self.cert is not None

    @classmethod
    def from_environment(cls) -> "Credentials":
        """Return the credentials of the variable TERNMQ_CREDENTIALS_FILE; without it, none.

        Raises:
            ConfigError: The file cannot be read, or has another form.
        """
        path = os.environ.get(CREDENTIALS_VARIABLE)
        return cls.from_file(path) if path else cls()


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsConfig:
    """TLS of a service, from 1.2 on: PEM files, which are read again after each change.

    Raises:
        ConfigError: A setting cannot work, or a file cannot be read; names it.
    """

    cert: Path | None = None
    """Certificate of the service, with its chain. Its SAN has the broker's name, and the host names
    and IP addresses by which a NameServer is reached. None = connections without TLS."""

    key: Path | None = None
    """Private key of `cert`."""

    ca: Path | None = None
    """Certificates of the authorities that verify clients, and the services to which this one
    connects. With it, the service connects by TLS and shows `cert`."""

    client_auth: ClientAuth = ClientAuth.NONE
    """Certificates of callers: `required` refuses callers without one of `ca`."""

    def __post_init__(self) -> None:
        check_pair("tls", self.cert, self.key)
        check_authority("tls", self.ca)
        if self.client_auth is ClientAuth.REQUIRED and (self.cert is None or self.ca is None):
            rule = "needs tls.cert, tls.key and tls.ca"
            raise ConfigError("tls.client_auth", self.client_auth.value, rule)

    def own_credentials(self, given: Credentials) -> Credentials:
        """Return the credentials with which the service connects.

        Args:
            given: Credentials of the process, whose certificates count first.
        """
        if given.ca is not None or self.ca is None:
            return given
        return replace(given, ca=self.ca, cert=self.cert, key=self.key)


def check_pair(section: str, cert: Path | None, key: Path | None) -> None:
    """Check that a certificate and its key belong together, and can be used now. Blocks.

    Args:
        section: Section of the two settings, for the error.
        cert: File of the certificate; None = there is none.
        key: File of its key.

    Raises:
        ConfigError: One is missing, or they cannot be used.
    """
    setting = f"{section}.cert"
    if cert is None and key is None:
        return
    if key is None:
        raise ConfigError(setting, str(cert), f"needs {section}.key, too")
    if cert is None:
        raise ConfigError(f"{section}.key", str(key), f"needs {section}.cert, too")
    for path in (cert, key):
        _check_readable(setting, cert, path)
    try:
        # A passphrase would be asked for at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "no PEM file, or its key has a passphrase"
        rule = f"cannot be used with the key {key}: {reason}"
        raise ConfigError(setting, str(cert), rule) from error


def check_authority(section: str, ca: Path | None) -> None:
    """Check that the certificates of authorities can be used now. Blocks.

    Args:
        section: Section of the setting, for the error.
        ca: File of the certificates; None = there is none.

    Raises:
        ConfigError: The file cannot be read, or has no certificate.
    """
    if ca is None:
        return
    _check_readable(f"{section}.ca", ca, ca)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ConfigError(f"{section}.ca", str(ca), "has no certificate in PEM form") from error


def _check_readable(setting: str, value: Path, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigError(setting, str(value), reason) from error
