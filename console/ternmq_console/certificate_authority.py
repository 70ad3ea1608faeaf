"""Certificates of a small certificate authority, for development.

Needs `cryptography`: import the module where `MissingPackage` becomes an error line.
"""

import os
import re
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeAlias

from ternmq_model.errors import MissingPackage, UsageError
from ternmq_model.version import install_command
from ternmq_runtime.durable_file import make_directory_durably, open_private, sync_directory

try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
except ImportError as error:
    raise MissingPackage(
        "certificates need a package that is not installed: " + install_command("security")
    ) from error

KeyPair: TypeAlias = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
"""A certificate, and the private key that belongs to it."""

CA_NAME: Final = "ca"
"""Name of the authority's files: `ca.pem` and `ca-key.pem`."""

CLOCK_SKEW: Final = timedelta(minutes=5)
"""Time for which a certificate is valid before it is made: other machines' clocks may be late."""

_PUBLIC_FILE: Final = 0o644
_KEY_SUFFIX: Final = "-key"
_NAME_CHARACTERS_MAX: Final = 64  # of a common name, in RFC 5280
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_DNS_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)

_OPENSSL_NAMES: Final = {
    NameOID.EMAIL_ADDRESS: "emailAddress",
    NameOID.GIVEN_NAME: "GN",
    NameOID.SERIAL_NUMBER: "serialNumber",
    NameOID.STREET_ADDRESS: "street",
    NameOID.SURNAME: "SN",
    NameOID.TITLE: "title",
}
"""Attributes that OpenSSL, and so gRPC, names differently from RFC 4514."""


def make_authority(name: str, *, not_before: datetime, not_after: datetime) -> KeyPair:
    """Return a new authority, which signs itself and may sign no other authority.

    Raises:
        UsageError: The name is empty or longer than 64 characters.
    """
    if not 0 < len(name) <= _NAME_CHARACTERS_MAX:
        raise UsageError(f"the name {name!r} must have 1 to {_NAME_CHARACTERS_MAX} characters")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name(name)
    builder = (
        _builder(subject, subject, key, not_before, not_after)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
    )
    return builder.sign(key, hashes.SHA256()), key


def issue_certificate(
    authority: KeyPair,
    name: str,
    *,
    hosts: tuple[str, ...],
    not_before: datetime,
    not_after: datetime,
    is_client: bool = True,
    is_server: bool = True,
) -> KeyPair:
    """Return a new certificate for `name`, signed by the authority.

    Args:
        authority: Signer.
        name: User of a client's certificate, broker name of a broker's. It is the common name and
            the first subject alternative name.
        hosts: Further subject alternative names: DNS names or IP addresses.
        not_before: Start of the validity.
        not_after: End of the validity; that of the authority, if it is earlier.
        is_client: True = clients may use the certificate.
        is_server: True = services may use the certificate.

    Raises:
        UsageError: The name or a host is illegal, or nobody may use the certificate.
    """
    check_name(name)
    signer, signer_key = authority
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH] * is_client
    uses += [ExtendedKeyUsageOID.SERVER_AUTH] * is_server
    if not uses:
        raise UsageError("a certificate is for clients, for servers, or for both")
    names = [alternative_name(text) for text in dict.fromkeys((name, *hosts))]
    key = ec.generate_private_key(ec.SECP256R1())
    not_after = min(not_after, signer.not_valid_after_utc)
    builder = (
        _builder(_common_name(name), signer.subject, key, not_before, not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()),
            critical=False,
        )
    )
    return builder.sign(signer_key, hashes.SHA256()), key


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    not_before: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def check_name(name: str) -> None:
    """Check the name of a certificate, which is also the name of its files.

    Raises:
        UsageError: The name is illegal.
    """
    if not _NAME.fullmatch(name) or len(name) > _NAME_CHARACTERS_MAX:
        rule = f"1 to {_NAME_CHARACTERS_MAX} of letters, digits, '_', '-' and '.', not first '.'"
        raise UsageError(f"the name {name!r} must have {rule}")
    if name == CA_NAME or name.endswith(_KEY_SUFFIX):
        raise UsageError(f"the name {name!r} would be that of another file of the folder")


def alternative_name(host: str) -> x509.DNSName | x509.IPAddress:
    """Return the subject alternative name of a host.

    Raises:
        UsageError: The text is neither an IP address nor a DNS name.
    """
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if _DNS_NAME.fullmatch(host):
            return x509.DNSName(host)
        raise UsageError(f"{host!r} is neither a DNS name nor an IP address") from None


def alternative_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names and IP addresses of a certificate, in their order."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [
        str(name.value)
        for name in extension.value
        if isinstance(name, x509.DNSName | x509.IPAddress)
    ]


def subject_text(name: x509.Name) -> str:
    r"""Return a subject or issuer as gRPC's `x509_subject` has it, such as `CN=shop,O=Example`.

    gRPC takes the text from OpenSSL (`XN_FLAG_RFC2253`), which escapes control characters and bytes
    outside ASCII, such as `\C3`.
    """
    names: dict[ObjectIdentifier, str] = dict(_OPENSSL_NAMES)
    text = name.rfc4514_string(names)
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\{byte:02X}" for byte in text.encode())


def date_text(at: datetime) -> str:
    """Return a time in UTC as ISO 8601 in whole seconds, which certificates have."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def certificate_path(folder: Path, name: str) -> Path:
    """Return the path of the certificate called `name`."""
    return folder / f"{name}.pem"


def key_path(folder: Path, name: str) -> Path:
    """Return the path of the private key that belongs to the certificate called `name`."""
    return folder / f"{name}{_KEY_SUFFIX}.pem"


def read_certificate(path: Path) -> x509.Certificate:
    """Return the first certificate in a PEM file, which may have the chain behind it.

    Raises:
        UsageError: The file has no certificate.
        OSError: The file cannot be read.
    """
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except ValueError:
        raise UsageError(f"{path} has no readable certificate") from None


def read_authority(folder: Path, *, now: datetime) -> KeyPair:
    """Return the authority in a folder.

    Raises:
        UsageError: The certificate is that of no authority, expired or not yet valid, or the key
            belongs to another certificate.
        FileNotFoundError: The folder has no authority.
        OSError: A file cannot be read.
    """
    path, secret = certificate_path(folder, CA_NAME), key_path(folder, CA_NAME)
    if missing := [str(file) for file in (path, secret) if not file.exists()]:
        raise FileNotFoundError(f"no CA in {folder}: {' and '.join(missing)} missing")
    certificate = read_certificate(path)
    try:
        key = load_pem_private_key(secret.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The error's text stays out: it may quote the file.
        raise UsageError(f"{secret} has no readable private key without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{secret} has no elliptic curve key")
    if key.public_key() != certificate.public_key():
        raise UsageError(f"{secret} belongs to another certificate than {path}")
    if not _is_authority(certificate):
        raise UsageError(f"{path} is no certificate of a CA")
    if now > certificate.not_valid_after_utc:
        raise UsageError(f"the CA {path} expired at {date_text(certificate.not_valid_after_utc)}")
    if now < certificate.not_valid_before_utc:
        start = date_text(certificate.not_valid_before_utc)
        raise UsageError(f"the CA {path} is valid from {start}")
    return certificate, key


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def write_pair(pair: KeyPair, folder: Path, name: str, *, replace: bool = False) -> None:
    """Write `<name>.pem` for everybody and `<name>-key.pem` for this user alone, durably.

    A missing folder is created. Each file appears with its whole content: a service that reads
    between the two meets the new key with the certificate before.

    Raises:
        UsageError: One of the files exists, and `replace` is False. Nothing was written.
        OSError: The write failed. The key may have been written.
    """
    certificate, key = pair
    path, secret = certificate_path(folder, name), key_path(folder, name)
    if not replace and (found := [str(file) for file in (path, secret) if file.exists()]):
        raise UsageError(f"{' and '.join(found)} already there: --force replaces both files")
    make_directory_durably(folder)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(secret, pem)
    _write(path, certificate.public_bytes(Encoding.PEM), mode=_PUBLIC_FILE)
    sync_directory(folder)


def _write(path: Path, data: bytes, *, mode: int | None = None) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)  # an existing file would keep its mode
    with open_private(draft, "xb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
