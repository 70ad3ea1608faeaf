"""`ternmq acl …`."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from ternmq_console.access.cluster_access import access_of, changed_access
from ternmq_console.cli.exit_codes import FAILED, errors_as_exits
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import Row, print_record, print_rows
from ternmq_model.errors import ConfigError
from ternmq_model.permission import (
    Action,
    Need,
    Resource,
    to_administer,
    to_publish,
    to_read,
)
from ternmq_security.access.access_table import AccessTable
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.permissions import deciding_grant, permissions_of
from ternmq_security.access.user import ANONYMOUS

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS: Final = ("user", "effect", "action", "resource")
_ACTION: Final = click.Choice([each.value for each in Action])
_USES: Final[Mapping[Action, Callable[[str], Need | None]]] = {
    Action.PUBLISH: to_publish,
    Action.SUBSCRIBE: to_read,
    Action.ADMIN: to_administer,
}
"""Permissions that an action on a topic needs."""


def _permission_arguments(function: F) -> F:
    """Add the arguments USER, ACTION and RESOURCE."""
    function = click.argument("resource")(function)
    function = click.argument("action", type=_ACTION)(function)
    return click.argument("user")(function)


@click.command("list")
@click.option("--user", default="", help="Restrict the list to a user, or to anonymous.")
@cluster_options
def list_(user: str, nameserver: str, output: str) -> None:
    """List the permissions of users, and of callers without identity (anonymous)."""
    table = access_of(nameserver)
    if user:
        _check_present(table, user)
    rows = [_row(each) for each in table.grants if user in ("", each.user)]
    print_rows(rows, _COLUMNS, output)


@click.command()
@_permission_arguments
@click.option("--deny", is_flag=True, help="Deny the action. A denial wins over every allowance.")
@cluster_options
def grant(
    user: str, action: str, resource: str, *, deny: bool, nameserver: str, output: str
) -> None:
    """Allow ACTION on RESOURCE to USER, or deny it.

    USER may be anonymous: callers without identity. RESOURCE is cluster, topic:NAME, topic:PREFIX*,
    group:NAME, group:PREFIX* or *, which means all of them.
    """
    given = _grant(user, action, resource, deny=deny)
    changed_access(nameserver, lambda table: table.with_grant(given))
    print_rows([_row(given)], _COLUMNS, output)


@click.command()
@_permission_arguments
@click.option("--deny", is_flag=True, help="Remove the denial rather than the allowance.")
@cluster_options
def revoke(
    user: str, action: str, resource: str, *, deny: bool, nameserver: str, output: str
) -> None:
    """Remove the permission of USER for ACTION on RESOURCE, exactly as it was granted."""
    gone = _grant(user, action, resource, deny=deny)
    table = changed_access(nameserver, lambda table: table.without_grant(gone))
    print_rows([_row(each) for each in table.grants_of(user)], _COLUMNS, output)


@click.command("test")
@_permission_arguments
@cluster_options
def test_(user: str, action: str, resource: str, nameserver: str, output: str) -> None:
    """Check whether USER may do ACTION on RESOURCE: exit code 0 if allowed, 1 if denied.

    RESOURCE is cluster, topic:NAME or group:NAME.
    """
    with errors_as_exits():
        need = _need(_grant(user, action, resource, deny=False))
    table = access_of(nameserver)
    if table.users:
        _check_present(table, user)
    is_allowed = permissions_of(table, user).allows(need)
    row = {"user": user, "action": action, "resource": resource, "allowed": is_allowed}
    print_record({**row, "reason": _reason(table, user, need)}, output)
    if not is_allowed:
        raise SystemExit(FAILED)


def _grant(user: str, action: str, resource: str, *, deny: bool) -> Grant:
    """Return a grant; a bad word becomes a line and an exit code."""
    with errors_as_exits():
        pattern = ResourcePattern.parse(resource)
        return Grant(user, Effect.DENY if deny else Effect.ALLOW, Action(action), pattern)


def _need(asked: Grant) -> Need | None:
    """Return the permission that a call needs; None = every known identity has it.

    Raises:
        ConfigError: The resource is a pattern.
    """
    kind, name = asked.pattern.kind, asked.pattern.name
    if kind is None or asked.pattern.is_prefix:
        raise ConfigError("resource", str(asked.pattern), "must be one topic or group, or cluster")
    if kind == "topic" and asked.action in _USES:
        return _USES[asked.action](name)
    return asked.action, Resource(kind, name)


def _reason(table: AccessTable, user: str, need: Need | None) -> str:
    if not table.users:
        return "there are no users: everything is allowed to everybody"
    if need is None:
        return "every known identity may do this"
    deciding = deciding_grant(table, user, need)
    return str(deciding) if deciding else "no permission is about this"


def _check_present(table: AccessTable, user: str) -> None:
    """Check that a user exists; otherwise end with a line and an exit code."""
    with errors_as_exits():
        if user != ANONYMOUS:
            table.existing(user)


def _row(grant: Grant) -> Row:
    return {
        "user": grant.user,
        "effect": grant.effect.value,
        "action": grant.action.value,
        "resource": str(grant.pattern),
    }
