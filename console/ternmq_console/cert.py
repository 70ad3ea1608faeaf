"""`ternmq cert …`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import output_option
from ternmq_console.cli.output import Row, print_record
from ternmq_runtime.clock import SystemClock

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

# The module of certificates is imported inside `errors_as_exits`: it needs the extra `security`.

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""Hosts of every certificate."""

_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
_DAYS: Final = click.IntRange(1, 36_500)


def _validity(days: int) -> tuple[datetime, datetime]:
    from ternmq_console.certificate_authority import CLOCK_SKEW

    now = _now()
    return now - CLOCK_SKEW, now + timedelta(days=days)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().wall_ms() // 1000, UTC)


@click.command()
@click.option("--out", "folder", type=_FOLDER, required=True, metavar="DIR", help="Folder.")
@click.option(
    "--name", default="TernMQ development CA", show_default=True, help="Common name of the CA."
)
@click.option("--days", type=_DAYS, default=3650, show_default=True, help="Days of validity.")
@click.option("--force", is_flag=True, help="Replace a CA; no peer trusts its certificates then.")
@output_option
def ca(folder: Path, name: str, days: int, force: bool, output: str) -> None:
    """Make a certificate authority (CA): DIR/ca.pem and its private key, DIR/ca-key.pem.

    Everybody who reads the key can make certificates for every user and every broker.
    """
    with errors_as_exits():
        from ternmq_console.certificate_authority import CA_NAME, make_authority, write_pair

        not_before, not_after = _validity(days)
        pair = make_authority(name, not_before=not_before, not_after=not_after)
        write_pair(pair, folder, CA_NAME, replace=force)
    print_record(_written(pair[0], folder, CA_NAME), output)


@click.command()
@click.argument("name")
@click.option("--out", "folder", type=_FOLDER, required=True, metavar="DIR", help="Folder.")
@click.option(
    "--ca", "authority", type=_FOLDER, metavar="DIR", help="Folder of the CA, if not that of --out."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="DNS name or IP address of the service, beside the loopback ones; may be repeated.",
)
@click.option("--days", type=_DAYS, default=365, show_default=True, help="Days of validity.")
@click.option("--client", "is_client", is_flag=True, help="Only for clients.")
@click.option("--server", "is_server", is_flag=True, help="Only for services.")
@click.option("--force", is_flag=True, help="Replace the existing files.")
@output_option
def issue(
    name: str,
    folder: Path,
    authority: Path | None,
    hosts: tuple[str, ...],
    days: int,
    is_client: bool,
    is_server: bool,
    force: bool,
    output: str,
) -> None:
    """Make a certificate for NAME: DIR/NAME.pem and its private key, DIR/NAME-key.pem.

    NAME is a user or the name of a broker. The certificate expires with the CA, if not before.
    """
    with errors_as_exits():
        from ternmq_console.certificate_authority import (
            issue_certificate,
            read_authority,
            write_pair,
        )

        not_before, not_after = _validity(days)
        pair = issue_certificate(
            read_authority(authority or folder, now=_now()),
            name,
            hosts=(*LOOPBACK, *hosts),
            not_before=not_before,
            not_after=not_after,
            is_client=is_client or not is_server,
            is_server=is_server or not is_client,
        )
        write_pair(pair, folder, name, replace=force)
    print_record(_written(pair[0], folder, name), output)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@output_option
def show(file: Path, output: str) -> None:
    """Show the first certificate in FILE, with its subject in the form of the table of users."""
    with errors_as_exits():
        from ternmq_console.certificate_authority import date_text, read_certificate, subject_text

        made = read_certificate(file)
        row = {
            **_row(made),
            "valid_from": date_text(made.not_valid_before_utc),
            "issuer": subject_text(made.issuer),
        }
    print_record(row, output)


def _written(made: "Certificate", folder: Path, name: str) -> Row:
    from ternmq_console.certificate_authority import certificate_path, key_path

    files = {"certificate": str(certificate_path(folder, name)), "key": str(key_path(folder, name))}
    return {**_row(made), **files}


def _row(made: "Certificate") -> Row:
    from ternmq_console.certificate_authority import alternative_names, date_text, subject_text

    return {
        "subject": subject_text(made.subject),
        "serial": f"{made.serial_number:x}",
        "names": alternative_names(made),
        "expires": date_text(made.not_valid_after_utc),
    }
