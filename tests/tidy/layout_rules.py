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
    "model/ternmq_model/record/format.py": "records, one by one",
    "model/ternmq_model/record/header_arrays.py": "headers of many records at once",
    "store/ternmq_store/log/checkpoint.py": "the checkpoint of a store",
    "store/ternmq_store/queues/units.py": "units of consume queues",
    "store/ternmq_store/queues/ext_units.py": "extension units of consume queues",
    "store/ternmq_store/index/index_format.py": "index files",
    "store/ternmq_store/scan_process/frames.py": "frames between a broker and its scan process",
    "store/ternmq_store/disk/directory_lock.py": "the kernel's flock structure",
    "store/ternmq_store/columns/slices.py": "offsets of an Arrow array, in native order",
    "broker/ternmq_broker/scheduled/timer_wheel.py": "keys of waiting messages, in memory",
    "broker/ternmq_broker/state/timer_log.py": "RocketMQ's timer log",
    "broker/ternmq_broker/state/timer_checkpoint.py": "RocketMQ's timer checkpoint",
    "remoting/ternmq_remoting/local_health.py": "the kernel's credentials of a peer",
    "client/ternmq_client/admin/messages.py": "lengths of records, without numpy",
    "producer/ternmq_producer/staging/staged_messages.py": "staged messages, packed",
    "consumer/ternmq_consumer/rebalance/allocation/consistent_hash.py": "RocketMQ's hash ring",
    "consumer/ternmq_consumer/scan/range_batches.py": "the frame of an Arrow message",
    "pipeline/ternmq_pipeline/sink/commit_message.py": "commit messages of a sink",
}
"""Modules and the layouts that they read and write; every other module calls their functions."""

BYTE_ORDER: Final = re.compile(r"[<>][a-zA-Z]\d")
"""A type of numpy with its byte order, such as ">i8"."""


def layouts_stay_home(source: Source) -> Iterator[Violation]:
    """Find bytes that are taken apart or put together outside the module of their layout."""
    if not source.is_shipped or source.file in HOMES:
        return
    rule = "only a module of HOMES in tests/tidy/layout_rules.py knows a layout"
    for node, module in source.imports:
        if module.split(".")[0] == "struct":
            yield source.at(node, f"{rule}: struct")
    for call in source.nodes(ast.Call):
        match call.func:
            case ast.Attribute(ast.Name("int"), "from_bytes"):
                yield source.at(call, f"{rule}: int.from_bytes")
            case ast.Attribute(_, "to_bytes") if call.args:
                yield source.at(call, f"{rule}: to_bytes")
            case ast.Attribute(_, "frombuffer") if not _is_of_bytes(call):
                yield source.at(call, f"{rule}: frombuffer of other items than bytes")
            case _:
                pass
    for constant in source.nodes(ast.Constant):
        if isinstance(constant.value, str) and BYTE_ORDER.fullmatch(constant.value):
            yield source.at(constant, f"{rule}: {constant.value}")
    for part in source.nodes(ast.Subscript):
        match part.slice:
            case ast.Slice(None | ast.Constant(0), ast.Constant(4 | 8 as end)):
                yield source.at(part, f"{rule}: bytes 0 to {end}")
            case ast.Slice(ast.Constant(int(begin)), ast.Constant(int(end))) if 0 < begin < end - 1:
                yield source.at(part, f"{rule}: bytes {begin} to {end}")
            case _:
                pass


def _is_of_bytes(call: ast.Call) -> bool:
    """Return whether a call of `np.frombuffer` names single bytes as its type."""
    named = (word.value for word in call.keywords if word.arg == "dtype")
    kind = next(named, call.args[1] if len(call.args) > 1 else None)
    return isinstance(kind, ast.Attribute) and kind.attr == "uint8"


RULES: Final = (layouts_stay_home,)
