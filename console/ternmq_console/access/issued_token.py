"""New tokens, and the ways in which their owner gets them: standard output or a file."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ternmq_console.cli.admin_query import time_text
from ternmq_console.cli.options import duration_ms
from ternmq_console.cli.output import Row, print_line, print_record
from ternmq_model.errors import UsageError
from ternmq_model.printable_text import printable_json
from ternmq_remoting.tls import Credentials
from ternmq_runtime.clock import SystemClock
from ternmq_runtime.durable_file import open_private
from ternmq_runtime.secret_bytes import secret_bytes
from ternmq_security.access.user import TokenHash
from ternmq_security.tokens import SECRET_BYTES, new_token

F = TypeVar("F", bound=Callable[..., Any])

_ORIGIN_BYTES: Final = 8
_SALT_BYTES: Final = 16
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def token_options(function: F) -> F:
    """Add `--expires`, `--credentials-file` and `--ca`: `lifetime_ms`, `path` and `ca`."""
    function = click.option(
        "--ca", type=_FILE, metavar="FILE", help="CA of the services, for the file of credentials."
    )(function)
    function = click.option(
        "--credentials-file",
        "path",
        type=_FILE,
        metavar="FILE",
        help="Write the token into a new file of credentials (mode 0600), and do not print it.",
    )(function)
    return click.option(
        "--expires",
        "lifetime_ms",
        type=duration_ms,
        metavar="DURATION",
        help="Time for which the token is valid, such as 90d; without it, forever.",
    )(function)


def new_origin() -> str:
    """Return the random origin of a new table of users."""
    return secret_bytes(_ORIGIN_BYTES).hex()


def issue_token(user: str, lifetime_ms: int | None) -> tuple[str, TokenHash]:
    """Return the text and hash of a new token. Blocks for about 50 ms.

    Raises:
        IllegalName: The name of the user breaks the rules.
        UsageError: The lifetime is 0, or too long.
    """
    if lifetime_ms == 0:
        raise UsageError("a token that expires at once is useless")
    now_ms = SystemClock().wall_ms()
    salt = secret_bytes(_SALT_BYTES)
    expires_at_ms = now_ms + lifetime_ms if lifetime_ms else 0
    return new_token(user, secret_bytes(SECRET_BYTES), salt, now_ms, expires_at_ms)


@contextmanager
def credentials_written(path: Path | None, text: str, ca: Path | None) -> Generator[None]:
    """Write a token into a new file of credentials; remove it when the block fails.

    Args:
        path: Path of the file; None = there is none.
        text: Text of the token.
        ca: Certificates of the authorities that the file names; None = it names none.

    Raises:
        ConfigError: The CA cannot be used.
        UsageError: The file exists, or there is a CA without a file.
        OSError: The file cannot be written.
    """
    if path is None:
        if ca is not None:
            raise UsageError("--ca needs --credentials-file")
        yield
        return
    trusted = Credentials(ca=ca, token=text).ca
    lines = [] if trusted is None else [f"ca = {printable_json(str(trusted))}\n"]
    lines.append(f'token = "{text}"\n')
    try:
        file = open_private(path, "xb")
    except FileExistsError:
        raise UsageError(f"{path} already exists") from None
    try:
        with file:
            file.write("".join(lines).encode())
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def token_row(token: TokenHash) -> Row:
    """Return the public fields of a token."""
    is_valid = token.is_valid_at(SystemClock().wall_ms())
    return {
        "id": token.token_id,
        "created": time_text(token.created_at_ms),
        "expires": time_text(token.expires_at_ms) or "never",
        "valid": is_valid,
    }


def print_token(user: str, text: str, token: TokenHash, path: Path | None, output: str) -> None:
    """Print a token, or the file that has it.

    As text the token is the only line on standard output, and the rest is on standard error.
    """
    row: dict[str, object] = {
        "user": user,
        "token_id": token.token_id,
        "expires": time_text(token.expires_at_ms) or "never",
    }
    if path is not None:
        print_record({**row, "credentials_file": str(path)}, output)
    elif output == "json":
        print_record({**row, "token": text}, output)
    else:
        note = f"token {row['token_id']} of user {user}, expires: {row['expires']}"
        print_line(f"{note}; it is shown only this once", to_stderr=True)
        print_line(text)
