"""TLS in gRPC: credentials of ports and channels, made from files that may change."""

import logging
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import grpc

from ternmq_model.errors import ConfigError, Unreachable
from ternmq_remoting.rpc import PeerCertificate
from ternmq_remoting.tls import (
    ClientAuth,
    Credentials,
    TlsConfig,
    check_authority,
    check_pair,
)

logger = logging.getLogger(__name__)

_Version = tuple[tuple[int, int, int], ...]
"""Inode, size and time of change of each file."""

_NO_FILE: Final = (0, 0, 0)

_VERSION_TAG: Final = 0xA0


class ServerCertificates:
    """Certificates of a port: read again at the first handshake after a change of their files.

    Certificates that cannot be used are reported once, and those before stay in use.

    Args:
        tls: Settings with a certificate.
    """

    def __init__(self, tls: TlsConfig) -> None:
        assert tls.cert is not None
        assert tls.key is not None
        self._cert, self._key, self._ca = tls.cert, tls.key, tls.ca
        self._asks_clients = tls.client_auth is ClientAuth.REQUIRED
        self._version: _Version = ()

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a port.

        Raises:
            ConfigError: The files cannot be used any more.
        """
        first = self._read()
        if first is None:
            raise ConfigError("tls.cert", str(self._cert), "cannot be used; see the log")
        stubs = cast("Any", grpc)  # the stubs lack dynamic credentials
        return cast(
            "grpc.ServerCredentials",
            stubs.dynamic_ssl_server_credentials(
                first, self._read, require_client_authentication=self._asks_clients
            ),
        )

    def _read(self) -> Any:
        """Return the certificates for the next handshakes; None = those before."""
        version = _version_of(self._cert, self._key, *([self._ca] if self._ca else []))
        if version == self._version:
            return None
        is_first, self._version = not self._version, version
        try:
            check_pair("tls", self._cert, self._key)
            check_authority("tls", self._ca)
            pair = self._key.read_bytes(), self._cert.read_bytes()
            authority = self._ca.read_bytes() if self._ca and self._asks_clients else None
        except (ConfigError, OSError) as error:
            logger.error("certificate not taken err=%s", error)
            return None
        if not is_first:
            logger.info("certificate taken file=%s", self._cert)
        stubs = cast("Any", grpc)
        return stubs.ssl_server_certificate_configuration([pair], root_certificates=authority)


def _version_of(*paths: Path) -> _Version:
    return tuple(map(_state_of, paths))


def _state_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return _NO_FILE
    return found.st_ino, found.st_size, found.st_mtime_ns


class ChannelCertificates:
    """Certificates of the channels of one process: read again for the first channel after a change.

    Args:
        credentials: Files of the process.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._version: _Version = ()
        self._made: grpc.ChannelCredentials | None = None

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return the credentials of a new channel; None = no TLS. Reads small files.

        Raises:
            Unreachable: A file cannot be read now.
        """
        ca, cert, key = self._credentials.ca, self._credentials.cert, self._credentials.key
        if ca is None:
            return None
        try:
            version = _version_of(ca, *([cert, key] if cert and key else []))
            if self._made is None or version != self._version:
                self._made = grpc.ssl_channel_credentials(
                    root_certificates=ca.read_bytes(),
                    private_key=key.read_bytes() if key else None,
                    certificate_chain=cert.read_bytes() if cert else None,
                )
                self._version = version
        except OSError as error:
            raise Unreachable(f"the credentials cannot be read: {error}") from error
        return self._made


@lru_cache(maxsize=1024)
def certificate_of(pem: bytes, subject: bytes, common_name: bytes) -> PeerCertificate:
    """Return a caller's certificate in gRPC's form."""
    return PeerCertificate(
        subject.decode("utf-8", "replace"),
        common_name.decode("utf-8", "replace"),
        serial_of(ssl.PEM_cert_to_DER_cert(pem.decode())),
    )


def serial_of(der: bytes) -> int:
    """Return the serial number of an X.509 certificate in DER form.

    Source: RFC 5280, 4.1: a sequence of a sequence that begins with an optional version (tag A0)
    and the serial number.
    """
    at, _ = _content(der, 0)
    at, _ = _content(der, at)
    start, end = _content(der, at)
    if der[at] == _VERSION_TAG:
        start, end = _content(der, end)
    return int.from_bytes(der[start:end], "big", signed=True)


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Return the begin and end of the content of the element at `at`."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    return start, start + length
