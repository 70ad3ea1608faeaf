"""Rules of log lines: the words of an event, then keys of one table, and no message."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.tidy.source import Source, Violation

LEVELS: Final = frozenset(
    {"debug", "info", "warning", "error", "exception", "critical", "fatal", "log"}
)

ROUTE_CHANGE: Final = "change.template"
"""Template of a `RouteChange`, which is checked where it is made."""

FORM: Final = re.compile(r"[A-Za-z][^=%]*[^=%:;., ](?: [a-z][a-z_]*=%(?:\.\d)?[a-z])*")
"""Words, then `key=value` to the end."""

KEY: Final = re.compile(r"(\w+)=")

CONTENTS: Final = frozenset({"body", "bodies", "data", "payload", "content"})
"""Names of arguments that may hold messages."""

FOLDER: Final = "config.data"
"""The directory of a service."""

FIXED: Final = frozenset({"ts", "level", "logger", "event", "message", "exception"})
"""Members of each line in JSON, which hide a key of the same name."""

KEYS: Final = {
    # Places and names
    "topic": "name of a topic",
    "group": "name of a group",
    "queue": "id of a queue with `topic` and `broker`; on clients a"
    " `MessageQueue`, whose members those are",
    "offset": "offset in a queue",
    "message_id": "unique key of a message",
    "client": "id of a client",
    "broker": "name of a broker",
    "broker_id": "id of a member of a broker: 0 is the master",
    "cluster": "name of a cluster",
    "nameserver": "address of a NameServer",
    "address": "address of a peer or of the service",
    "own_address": "address of this service, beside another one",
    "endpoints": "addresses at which a broker says that it listens",
    "member": "member of a broker that answered",
    "master": "address of the followed master",
    "role": "role of a member",
    "namespace": "namespace of a setting of a NameServer",
    "key": "name of a setting of a NameServer",
    "setting": "name of a setting of a broker",
    "value": "value of a setting, or what a function returned",
    "listener": "name of a listener",
    "call": "name of an operation of a client",
    "rpc": "path of an RPC",
    "functions": "names of functions",
    "signal": "name of a signal",
    "pid": "id of a process",
    "kind": "kind of messages: timed or delayed",
    "option": "option that changes this",
    # Causes
    "err": "text of an error",
    "reason": "words about the cause, or a state",
    "code": "response code",
    "exit_code": "exit code of a process",
    "repair": "command that repairs this",
    "command": "command that does this by hand",
    "consequence": "effect of this",
    "by": "cause of a creation",
    "action": "reaction to this",
    "change": "kind of a change",
    "differences": "differences between members",
    "suppressed": "number of equal lines that were left out",
    "doubt": "doubt of a table of users",
    "claimed_by": "members that claim an epoch",
    "known_from": "source of an epoch",
    "silent": "whether the peer sent nothing",
    # Files
    "file": "path or name of a file",
    "folder": "path of a directory",
    "files": "number of files",
    "bytes": "number of bytes",
    "lines": "number of lines",
    "copy": "copy of a part that was cut",
    "position": "byte of a log, consume queue or index",
    "log_offset": "offset in the commit log",
    "log_end": "end of the commit log, or of a part of it",
    "clean": "whether a store was closed in order",
    "was_clean": "whether the last end was in order",
    "log_files": "number of files of the log",
    "scanned_from": "offset at which the scan of a start began",
    "cut_bytes": "bytes that were cut",
    "cut_records": "records that were cut",
    "cut_reason": "reason of a cut",
    "records_scanned": "records that a start read",
    "queues_rebuilt": "queues that a start wrote again",
    "findings": "number of findings",
    "unit": "unit of a consume queue",
    "expired": "whether a file was old enough",
    "newest_message_age": "age of the newest message of a file",
    "use": "level of the use of the disk",
    "used_percent": "used share of the disk",
    "sends": "whether sends are taken",
    "starts_over": "whether a log begins again",
    "near": "place of mended entries",
    # Numbers
    "count": "number of the things the event names",
    "messages": "number of messages",
    "records": "number of records",
    "rows": "number of rows",
    "entries": "number of entries",
    "queues": "queues, or their number",
    "topics": "topics, or their number",
    "groups": "names of groups",
    "brokers": "names of brokers",
    "members": "number of members",
    "calls": "number of calls",
    "epochs": "last epochs of a log",
    "limits": "limits of the port, with counts",
    "taken": "locks that are new",
    "held": "locks that a client has",
    "freed": "locks that ended",
    "dropped": "queues that a member lost",
    "added": "queues that a member got",
    "found": "number of messages that were found",
    "changed": "number of changed topics",
    "gone": "number of absent topics",
    "open": "open transactions",
    "unreadable": "messages that cannot be read",
    "ended_without_op": "transactions whose op message is absent",
    "already_ended": "transactions that had ended",
    "unanswered": "messages without an answer",
    "maybe_stored": "messages that may be stored",
    "waiting": "number of waiting checks",
    "counting": "slaves that count",
    "needed": "slaves that must count",
    "asked": "members that answered",
    "unreachable": "members that did not answer",
    "units_mended": "units of consume queues that were repaired",
    "entries_mended": "entries of the index that were repaired",
    "records_damaged": "damaged records",
    "round": "number of a round",
    "attempt": "number of an attempt",
    # Offsets and versions
    "from": "begin of a range, or value before a change",
    "to": "end of a range, or value after a change",
    "first": "first offset, name or record of several",
    "last": "last record of several",
    "end": "end of a queue, a log or a range",
    "before": "value before a change",
    "after": "value after a change",
    "kept": "value that stays",
    "requested": "offset that was asked for",
    "corrected": "offset that was given instead",
    "acknowledged": "log offset up to which a slave has all",
    "version": "version of a table or an offset",
    "version_kept": "version that stays",
    "epoch": "epoch of a master",
    "log_epoch": "last epoch in the log",
    "higher": "higher epoch",
    "decided": "decision about a slave's log",
    "min_offset": "begin of a queue",
    "max_offset": "end of a queue",
    "transaction": "offset of a half message",
    "staged_for": "purpose of staged rows",
    "first_of": "purpose of the first of several",
    "delay_level": "delay level",
    "source": "group whose offsets were copied",
    "created_before": "log offset before which a topic was created",
    # Settings and requests
    "new": "whether it did not exist",
    "again": "whether a client came back",
    "settings": "settings of a group",
    "dead_letters": "whether dead letters were deleted, too",
    "read_queues": "number of queues to read",
    "write_queues": "number of queues to write",
    "permissions": "permissions of a topic",
    "not_permitted_at": "brokers at which a topic cannot be read",
    "flush_mode": "flush mode",
    "condition": "condition of a subscription",
    "ignored": "ignored text of a subscription",
    "query": "id of a Spark query",
    "token": "token of a page",
    "text": "line of another program, or of HTTP",
    # Times
    "retry_s": "time to the next attempt",
    "left_s": "time left",
    "longest_s": "age of the oldest call",
    "after_s": "time until this",
    "for_s": "duration of this",
    "follow_in_s": "time until a clock follows",
    "by_ms": "step of a clock",
    "lead_ms": "lead of a clock",
    "ahead_of_newest_record_ms": "lead of a clock ahead of the log",
}
"""Every key of every line, with its meaning: one key for one thing."""


@dataclass(frozen=True)
class LogCall:
    """One call that logs a line, or makes one for the route table."""

    node: ast.Call
    level: str
    template: ast.expr | None
    arguments: Sequence[ast.expr]

    @property
    def text(self) -> str | None:
        """Return the template if it is constant."""
        template = self.template
        return str(template.value) if isinstance(template, ast.Constant) else None


def log_calls(source: Source) -> Iterator[LogCall]:
    """Find the calls of shipped code that log."""
    if not source.is_shipped:
        return
    for call in source.nodes(ast.Call):
        function, arguments = call.func, call.args
        if ast.unparse(function) == "RouteChange":
            values = arguments[1].elts if isinstance(arguments[1], ast.Tuple) else []
            yield LogCall(call, "info", arguments[0], values)
        elif isinstance(function, ast.Attribute) and _is_log(function):
            first = 1 if function.attr == "log" else 0
            template = arguments[first] if len(arguments) > first else None
            yield LogCall(call, function.attr, template, arguments[first + 1 :])


def _is_log(function: ast.Attribute) -> bool:
    return function.attr in LEVELS and ast.unparse(function.value).endswith("logger")


def loggers_are_called(source: Source) -> Iterator[Violation]:
    """Find methods of loggers under other names, whose lines these rules would not see."""
    if not source.is_shipped:
        return
    called = {id(call.func) for call in source.nodes(ast.Call)}
    for node in source.nodes(ast.Attribute):
        if _is_log(node) and id(node) not in called:
            yield source.at(node, f"{ast.unparse(node)}: call it; logger.log takes a level")


def lines_are_events(source: Source) -> Iterator[Violation]:
    """Find templates that are not words and keys of the table, and arguments that are messages."""
    for call in log_calls(source):
        if call.template is not None and ast.unparse(call.template) == ROUTE_CHANGE:
            continue
        if call.text is None:
            yield source.at(call.node, "the template of a line is a constant")
            continue
        if not FORM.fullmatch(call.text):
            yield source.at(call.node, f"{call.text!r}: a line is `words of the event key=%s`")
        for key in KEY.findall(call.text):
            if key not in KEYS:
                yield source.at(call.node, f"{key}: KEYS of {__name__} has no such key")
        for keyword in call.node.keywords:
            if keyword.arg not in ("exc_info", "args"):
                yield source.at(call.node, f"{keyword.arg}: a value belongs to a key of the line")
        for argument in call.arguments:
            for node in ast.walk(argument):
                if _name(node) in CONTENTS and ast.unparse(node) != FOLDER:
                    yield source.at(call.node, f"{_name(node)}: no message is logged")


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


RULES: Final = (loggers_are_called, lines_are_events)
