"""Modules that know the bytes of a layout, and the rule that no other one does."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from tests.tidy.source import Source, Violation

HOMES: Final[Mapping[str, str]] = {
    "model/ternmq_model/arrays.py": "arrays of integers in fields of the wire contract",
    "model/ternmq_model/bloom_filter.py": "bit maps of filters, and their hash",
    "model/ternmq_model/index_keys.py": "hashes of keys, over UTF-16 as in Java",
    "model/ternmq_model/message_id.py": "message ids",
    "model/ternmq_model/record/encoder.py": "headers of a producer's records",
    "model/ternmq_model/record/format.py": "records, one by one",
    "model/ternmq_model/record/header_arrays.py": "headers of many records at once",
    "store/ternmq_store/log/checkpoint.py": "the checkpoint of a store",
    "store/ternmq_store/queues/units.py": "units of consume queues",
    "store/ternmq_store/queues/ext_units.py": "extension units of consume queues",
    "store/ternmq_store/index/index_format.py": "index files",
    "store/ternmq_store/scan_process/frames.py": "frames between a broker and its scan process",
    "store/ternmq_store/disk/directory_lock.py": "the kernel's flock structure",
    "model/ternmq_model/columns/slices.py": "offsets of an Arrow array, in native order",
    "broker/ternmq_broker/scheduled/timer_wheel.py": "keys of waiting messages, in memory",
    "broker/ternmq_broker/statistics/counters.py": "rows of counters, in memory",
    "broker/ternmq_broker/state/timer_log.py": "RocketMQ's timer log",
    "broker/ternmq_broker/state/timer_checkpoint.py": "RocketMQ's timer checkpoint",
    "remoting/ternmq_remoting/grpc_tls.py": "the serial number of an X.509 certificate",
    "remoting/ternmq_remoting/connection_watcher.py": "the kernel's figures of a connection",
    "remoting/ternmq_remoting/local_health.py": "the kernel's credentials of a peer",
    "client/ternmq_client/admin/messages.py": "lengths of records, without numpy",
    "producer/ternmq_producer/staging/staged_messages.py": "staged messages, packed",
    "consumer/ternmq_consumer/rebalance/allocation/consistent_hash.py": "RocketMQ's hash ring",
    "consumer/ternmq_consumer/scan/range_batches.py": "the frame of an Arrow message",
    "pipeline/ternmq_pipeline/sink/commit_message.py": "commit messages of a sink",
}
"""Modules and the layouts that they read and write; every other module calls their functions."""

SEPARATOR_HOMES: Final[Mapping[str, str]] = {
    "model/ternmq_model/properties.py": "properties of records",
    "client/ternmq_client/tracing/trace_records.py": "records of traces",
}
"""Modules with the bytes 0x01 and 0x02, and the form in which these are separators."""

CODECS: Final = frozenset({"array", "struct"})
"""Modules of the standard library that turn bytes into numbers."""

BYTE_ORDER: Final = re.compile(r"[<>=!][a-zA-Z]\d*")
"""A type of numpy with its byte order, such as ">i8"."""

DECODERS: Final = frozenset(
    {"byteswap", "iter_unpack", "newbyteorder", "pack_into", "unpack", "unpack_from"}
)
"""Methods that take bytes apart or put them together."""

EXCERPT_MIN: Final = 100
"""Characters from which a constant end is that of an excerpt of a text: no layout has it."""


def layouts_stay_home(source: Source) -> Iterator[Violation]:
    """Find bytes that are taken apart or put together outside the module of their layout."""
    if not source.is_shipped or source.file in HOMES:
        return
    rule = "only a module of HOMES in tests/tidy/layout_rules.py knows a layout"
    for node, module in source.imports:
        if (top := module.split(".")[0]) in CODECS:
            yield source.at(node, f"{rule}: {top}")
    for name in source.nodes(ast.Attribute):
        match name:
            case ast.Attribute(ast.Name("int"), "from_bytes"):
                yield source.at(name, f"{rule}: int.from_bytes")
            case _ if name.attr in DECODERS:
                yield source.at(name, f"{rule}: {name.attr}")
            case _:
                pass
    for call in source.nodes(ast.Call):
        if said := _fault_of_call(call):
            yield source.at(call, f"{rule}: {said}")
    for constant in source.nodes(ast.Constant):
        if isinstance(constant.value, str) and BYTE_ORDER.fullmatch(constant.value):
            yield source.at(constant, f"{rule}: {constant.value}")
    # Excerpts of texts in messages: `f"{text[:40]!r}"`.
    excerpts = {part for text in source.nodes(ast.FormattedValue) for part in ast.walk(text.value)}
    for part in source.nodes(ast.Subscript):
        if isinstance(part.slice, ast.Slice):
            bounds = part.slice.lower, part.slice.upper
            is_excerpt = bounds[0] is None and part in excerpts
            if any(map(_is_at_a_number, bounds)) or (_is_of_numbers(*bounds) and not is_excerpt):
                yield source.at(part, f"{rule}: [{ast.unparse(part.slice)}]")


def _fault_of_call(call: ast.Call) -> str:
    """Return the part of a layout that a call knows; empty = none."""
    match call.func:
        case ast.Attribute(_, "to_bytes") if call.args or call.keywords:
            return "to_bytes"
        case ast.Attribute(_, "frombuffer" | "fromfile" | "fromstring") if not _is_of_bytes(call):
            return "frombuffer of other items than bytes"
        case ast.Attribute(_, "pack") if len(call.args) > 1 or _has_star(call):
            return "pack of many fields"
        case ast.Attribute(_, "cast") if len(call.args) == 1:
            kind = call.args[0]
            return "cast to numbers" if isinstance(kind, ast.Constant) else ""
        case ast.Name("slice") if len(call.args) > 1 and _is_of_numbers(*call.args[:2]):
            return ast.unparse(call)
        case _:
            return ""


def _has_star(call: ast.Call) -> bool:
    return any(isinstance(each, ast.Starred) for each in call.args)


def _is_at_a_number(bound: ast.expr | None) -> bool:
    """Return whether a bound lies at least 2 behind or before another position: `at + 8`."""
    match bound:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            return any((_number(each) or 0) > 1 or _is_at_a_number(each) for each in (left, right))
        case _:
            return False


def _is_of_numbers(lower: ast.expr | None, upper: ast.expr | None) -> bool:
    """Return whether two bounds are constants of a layout, not of the ends of a list or text."""
    begin, end = _number(lower) or 0, _number(upper)
    if begin > 2 or min(begin, end or 0) < -3:
        return True
    if end is None or begin < 0:
        return False
    return end > begin + 1 if begin else 3 < end < EXCERPT_MIN


def _number(bound: ast.expr | None) -> int | None:
    """Return the number that `bound` is; None when it is something else."""
    match bound:
        case ast.Constant(int(number)):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            return -number
        case _:
            return None


def _is_of_bytes(call: ast.Call) -> bool:
    """Return whether a call of `np.frombuffer` names single bytes as its type."""
    named = (word.value for word in call.keywords if word.arg == "dtype")
    kind = next(named, call.args[1] if len(call.args) > 1 else None)
    return isinstance(kind, ast.Attribute) and kind.attr == "uint8"


def separators_stay_home(source: Source) -> Iterator[Violation]:
    """Find the bytes that separate properties outside the module that names them."""
    if not source.is_shipped or source.file in SEPARATOR_HOMES or source.file.endswith("_pb2.py"):
        return
    rule = "only a module of SEPARATOR_HOMES in tests/tidy/layout_rules.py has 0x01 or 0x02"
    for constant in source.nodes(ast.Constant):
        value = constant.value
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes) and not {1, 2}.isdisjoint(value):
            yield source.at(constant, rule)


RULES: Final = (layouts_stay_home, separators_stay_home)
