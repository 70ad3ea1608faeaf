"""RPCs that the audit trail has: which of them change something, and the contents. Pure.

Contents are names and numbers of a request, never values that may be secret: no message, no value
of a key-value setting, no hash of a token.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from ternmq_model.errors import UsageError
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import service_methods
from ternmq_security.access.access_table import AccessTable, access_table_from_json
from ternmq_security.rules import Rpc, Rule

Contents = Callable[[Any, AccessTable], list[str]]
"""Function of a request and the table of users before it; it returns the contents, by lines."""

_PART_CHARS_MAX: Final = 2000
"""A row of the table is longer only with the escapes of a long subject."""


def _fields(*paths: str) -> Contents:
    """Return the function that shows fields of a request, such as `topic.topic`."""

    def contents(request: Any, _table: AccessTable) -> list[str]:
        values = (f"{each.rpartition('.')[2]}={attrgetter(each)(request)}" for each in paths)
        return [" ".join(values)]

    return contents


def _reset(request: admin.ResetOffsetsRequest, _table: AccessTable) -> list[str]:
    kind = request.WhichOneof("to")
    to = "nothing" if kind is None else f"{kind}={getattr(request, kind)}"
    queues = ",".join(map(str, request.queue_ids)) or "all"
    return [f"group={request.group} topic={request.topic} queues={queues} to {to}"]


def _access(request: nameserver.PutAccessRequest, former: AccessTable) -> list[str]:
    """Return every difference of two tables, in as many parts as it takes; grants are first."""
    try:
        table = access_table_from_json(request.table)
    except (ValueError, UsageError, RecursionError):  # the handler refuses it
        return [f"version {request.expected_version} to an illegal table"]
    before, after = _rows(former), _rows(table)
    changes = [
        f"; {'changed' if row in before else 'added'} {row}"
        for row, value in after.items()
        if before.get(row) != value
    ]
    changes += [f"; removed {row}" for row in before if row not in after]
    parts = [head := f"version {request.expected_version} to {table.version}"]
    for change in changes:
        if len(parts[-1]) + len(change) > _PART_CHARS_MAX and parts[-1] != head:
            parts.append(head)
        parts[-1] += change
    return parts


def _rows(table: AccessTable) -> dict[str, object]:
    """Return the values of a table by their texts, which have names and ids alone."""
    rows: dict[str, object] = {f"grant {each}": each for each in table.grants}
    for user in table.users:
        rows[f"user {user.name}"] = user.name
        rows |= {f"token {each.token_id} of {user.name}": each for each in user.tokens}
        rows |= {f"subject of {user.name} {each!r}": each for each in user.subjects}
    rows |= {f"denial of subject {each!r}": each for each in table.denied_subjects}
    rows |= {f"denial of serial {each}": each for each in table.denied_serials}
    return rows


REPORTED: Final[Mapping[Rpc, Contents]] = {
    service_methods.REGISTER_BROKER: _fields(
        "cluster", "broker_name", "broker_id", "epoch", "incarnation"
    ),
    service_methods.UNREGISTER_BROKER: _fields(
        "cluster", "broker_name", "broker_id", "incarnation"
    ),
    service_methods.PUT_KV: _fields("namespace", "key"),
    service_methods.DELETE_KV: _fields("namespace", "key"),
    service_methods.WIPE_WRITE_PERMISSION: _fields("broker_name"),
    service_methods.ADD_WRITE_PERMISSION: _fields("broker_name"),
    service_methods.PUT_ACCESS: _access,
    service_methods.ROLL_BACK_STAGED: _fields("staged_for", "force"),
    service_methods.PUT_TOPIC: _fields(
        "topic.topic", "topic.read_queues", "topic.write_queues", "topic.permissions"
    ),
    service_methods.PUT_TOPICS: lambda request, _: [
        f"topics={','.join(each.topic for each in request.topics)}"
    ],
    service_methods.DELETE_TOPIC: _fields("topic"),
    service_methods.CLEAN_STORE: _fields(),
    service_methods.PUT_GROUP: _fields(
        "settings.group",
        "settings.consume_enabled",
        "settings.broadcast_enabled",
        "settings.retry_queues",
        "settings.retries_max",
    ),
    service_methods.DELETE_GROUP: _fields("group", "with_dead_letters"),
    service_methods.RESET_OFFSETS: _reset,
    service_methods.CLONE_OFFSETS: _fields("from_group", "to_group", "topic"),
    service_methods.UPDATE_SETTINGS: lambda request, _: [
        " ".join(f"{name}={value!r}" for name, value in sorted(request.values.items()))
    ],
    service_methods.PROMOTE: _fields("is_forced"),
    service_methods.FOLLOW: _fields("hello.cluster", "hello.broker_name", "hello.broker_id"),
    service_methods.SESSION: lambda request, _: [
        f"client_id={request.hello.client_id}"
        f" producer_groups={','.join(request.hello.producer_groups)}"
    ],
}
"""RPCs of administrators and brokers that change something, or copy all of it; and sessions."""


def resources_of(rule: Rule, request: Any) -> str | None:
    """Return the resources that the rule of an RPC finds in a request; None = it finds none."""
    found = dict.fromkeys(
        str(need[1]) for item in rule(request) for need in item[:1] if need is not None
    )
    return ",".join(found) or None
