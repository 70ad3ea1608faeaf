"""RPCs that the audit trail has: which of them change something, and the contents. Pure.

Contents are names and numbers of a request, never values that may be secret: no message, no value
of a key-value setting, no hash of a token.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ternmq_model.errors import UsageError
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import service_methods
from ternmq_security.access.access_table import AccessTable, access_table_from_json
from ternmq_security.rules import Rpc, Rule

Contents = Callable[[Any, AccessTable], str]
"""Function that returns the contents of a request, given the table of users before it."""

NAMES_MAX: Final = 20


def _fields(*paths: str) -> Contents:
    """Return the function that shows fields of a request, such as `topic.topic`."""

    def contents(request: Any, _table: AccessTable) -> str:
        return " ".join(f"{path.rpartition('.')[2]}={_value(request, path)}" for path in paths)

    return contents


def _value(message: Any, path: str) -> object:
    for name in path.split("."):
        message = getattr(message, name)
    return message


def _topics(request: admin.PutTopicsRequest, _table: AccessTable) -> str:
    return f"topics={_some(each.topic for each in request.topics)}"


def _settings(request: admin.UpdateSettingsRequest, _table: AccessTable) -> str:
    return " ".join(f"{name}={value!r}" for name, value in sorted(request.values.items()))


def _reset(request: admin.ResetOffsetsRequest, _table: AccessTable) -> str:
    kind = request.WhichOneof("to")
    to = "nothing" if kind is None else f"{kind}={getattr(request, kind)}"
    queues = _some(map(str, request.queue_ids)) or "all"
    return f"group={request.group} topic={request.topic} queues={queues} to {to}"


def _access(request: nameserver.PutAccessRequest, former: AccessTable) -> str:
    """Return the difference of two tables: users, tokens by their ids, grants, denials."""
    try:
        table = access_table_from_json(request.table)
    except (ValueError, UsageError, RecursionError):  # the handler refuses it
        return f"version {request.expected_version} to an illegal table"
    changes = [f"version {request.expected_version} to {table.version}"]
    before, after = _rows(former), _rows(table)
    changes += [f"removed {row}" for row in before if row not in after]
    changes += [f"added {row}" for row in after if row not in before]
    return "; ".join(changes)


def _rows(table: AccessTable) -> dict[str, None]:
    rows: list[str] = []
    for user in table.users:
        rows.append(f"user {user.name}")
        rows += [f"token {each.token_id} of {user.name}" for each in user.tokens]
        rows += [f"subject {each!r} of {user.name}" for each in user.subjects]
    rows += [f"grant {each}" for each in table.grants]
    rows += [f"denial of subject {each!r}" for each in table.denied_subjects]
    rows += [f"denial of serial {each}" for each in table.denied_serials]
    return dict.fromkeys(rows)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - NAMES_MAX
    return ",".join(listed[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


CHANGES: Final[Mapping[Rpc, Contents]] = {
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
    service_methods.PUT_TOPICS: _topics,
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
    service_methods.UPDATE_SETTINGS: _settings,
    service_methods.PROMOTE: _fields("is_forced"),
    service_methods.FOLLOW: _fields("hello.cluster", "hello.broker_name", "hello.broker_id"),
}
"""Administrative and replicating RPCs that change something, or copy all of it."""

UNREPORTED: Final[frozenset[Rpc]] = frozenset(
    {
        service_methods.GET_TOPIC_ROUTE,
        service_methods.GET_CLUSTER,
        service_methods.LIST_TOPICS,
        service_methods.GET_KV,
        service_methods.GET_EPOCH,
        service_methods.GET_ACCESS,
        service_methods.SEND,
        service_methods.SEND_STREAM,
        service_methods.PULL,
        service_methods.PULL_STREAM,
        service_methods.SCAN,
        service_methods.VIEW_MESSAGE,
        service_methods.QUERY_MESSAGES,
        service_methods.LIST_MEMBERS,
        service_methods.COMMIT_OFFSETS,
        service_methods.QUERY_OFFSET,
        service_methods.LOCK_QUEUES,
        service_methods.UNLOCK_QUEUES,
        service_methods.SEND_BACK,
        service_methods.END_TRANSACTION,
        service_methods.END_TRANSACTIONS,
        service_methods.FIND_TRANSACTIONS,
        service_methods.LIST_TRANSACTIONS,
        service_methods.QUERY_OFFSET_BY_TIME,
        service_methods.MEASURE_QUEUES,
        service_methods.DESCRIBE_TOPIC,
        service_methods.LIST_GROUPS,
        service_methods.DESCRIBE_GROUP,
        service_methods.DESCRIBE_BROKER,
        service_methods.DESCRIBE_STORE,
        service_methods.DESCRIBE_CONSUMER,
        service_methods.LIST_PRODUCERS,
        service_methods.DESCRIBE_STATISTICS,
        service_methods.LIST_SETTINGS,
        service_methods.METADATA,  # tables of a followed master: FOLLOW
        service_methods.REPLICATION_STATUS,
    }
)
"""RPCs that only read, or that applications call for each message. Sessions: `SESSION`."""


def resources_of(rule: Rule, request: Any) -> str | None:
    """Return the resources that the rule of an RPC finds in a request; None = it finds none."""
    found = dict.fromkeys(
        str(need[1]) for item in rule(request) for need in item[:1] if need is not None
    )
    return _some(found) or None
