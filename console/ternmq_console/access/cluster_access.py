"""The table of users and permissions of a cluster: read, and changed by compare-and-swap."""

import asyncio
from collections.abc import Callable
from typing import Final

from ternmq_client.admin.admin_client import AdminClient
from ternmq_console.cli.admin_query import ask
from ternmq_model.errors import RefusedError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_security.access.access_table import AccessTable, access_table_from_json

_ATTEMPTS: Final = 20
"""Attempts of one change: so many scripts may make changes at the same time."""

_PAUSE_S: Final = 0.1
"""Pause between attempts, in which NameServers pass on the change of another one."""


async def read_access(admin: AdminClient) -> AccessTable:
    """Return the newest table of the NameServers.

    Raises:
        RefusedError: They do not let this identity read it, or it cannot be read.
        TransportError: No NameServer answers.
    """
    _, data = await admin.access_table()
    try:
        return access_table_from_json(data)
    except ValueError as error:
        raise refusal(ResponseCode.SYSTEM_ERROR, f"users and permissions: {error}") from error


async def change_access(
    admin: AdminClient, change: Callable[[AccessTable], AccessTable]
) -> AccessTable:
    """Change the table at one NameServer, again if it was changed in the meantime.

    Args:
        admin: Client.
        change: Function that returns the changed table, or its argument when nothing changes. It
            may be called several times.

    Returns:
        The changed table.

    Raises:
        UsageError: `change` refuses.
        RefusedError: This identity may not change the table; ILLEGAL_OPERATION: it was another one
            at each attempt.
        TransportError: No NameServer answers. The change may have happened.
    """
    sent: AccessTable | None = None
    refused = refusal(ResponseCode.ILLEGAL_OPERATION, "")
    for attempt in range(_ATTEMPTS):
        await asyncio.sleep(_PAUSE_S if attempt else 0)
        present = await read_access(admin)
        if present == sent:  # a NameServer took it, and its answer was lost
            return present
        sent = change(present)
        if sent is present:
            return present
        try:
            await admin.put_access_table(sent.to_json(), present.version)
        except RefusedError as error:
            if error.code != ResponseCode.ILLEGAL_OPERATION:
                raise
            refused = error
        else:
            return sent
    remark = (
        f"nothing changed after {_ATTEMPTS} attempts: others change users and permissions at the"
        f" same time, or NameServers do not share them: {refused}"
    )
    raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def access_of(nameserver: str) -> AccessTable:
    """Return the table of a cluster; an error becomes a line and an exit code."""
    return ask(nameserver, read_access)


def changed_access(nameserver: str, change: Callable[[AccessTable], AccessTable]) -> AccessTable:
    """Return the table after `change_access`; an error becomes a line and an exit code."""
    return ask(nameserver, lambda admin: change_access(admin, change))
