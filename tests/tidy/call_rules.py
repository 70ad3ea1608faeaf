"""What may be called where."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.support import without_linux
from tests.tidy.source import Source, Violation, dotted

CLOCK_HOME: Final = "runtime/ternmq_runtime/clock.py"
CLOCKS: Final = frozenset(
    {
        *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
        *("time.perf_counter_ns", "time.process_time", "time.localtime", "time.gmtime"),
        *("time.ctime", "time.sleep", "datetime.datetime.now", "datetime.datetime.utcnow"),
        *("datetime.datetime.today", "datetime.date.today"),
    }
)

TASK_HOME: Final = "runtime/ternmq_runtime/service.py"
LOOSE_TASKS: Final = frozenset({"asyncio.create_task", "asyncio.ensure_future"})

RANDOM_HOME: Final = ("remoting/ternmq_remoting/system_environment.py", "runtime/ternmq_runtime/")
"""Where randomness enters; everything else gets a `random.Random` from its environment."""

BYTES_HOMES: Final = (
    "model/ternmq_model/columns/",
    "store/ternmq_store/inspection/overlay.py",
)
"""What they slice are bytes."""

NEVER: Final = frozenset(
    {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp"}
)

LINUX_ONLY: Final = frozenset(
    f"{module.__name__}.{name}"
    for module, names in without_linux.LINUX_ONLY.items()
    for name in names
)

OUTPUT_HOME: Final = "console/ternmq_console/cli/output.py"
OUTPUTS: Final = frozenset(
    {
        *("click.echo", "click.secho", "click.style", "json.dump", "json.dumps"),
        *("sys.__stdout__", "sys.__stderr__", "sys.stdout.buffer", "sys.stderr.buffer"),
        *("sys.stdout.write", "sys.stderr.write", "os.write"),
    }
)

_LOOP: Final = re.compile(r"\bloop$|get_(running|event)_loop\(\)$")
_MAP: Final = re.compile(r"(^|_|\.)(mm|mmap|map|mapped|mapping)$")


def only_the_clock_reads_clocks(source: Source) -> Iterator[Violation]:
    """Find reads of the system's clocks, and sleeps. Code that is not shipped may measure."""
    if not source.is_shipped or source.file == CLOCK_HOME:
        return
    for node, name in source.qualified_names:
        if name in CLOCKS:
            yield source.at(node, f"{name}: time is an argument; {CLOCK_HOME} alone reads it")


def tasks_have_owners(source: Source) -> Iterator[Violation]:
    """Find tasks that no `TaskGroup` or `JobRunner` waits for."""
    if not source.is_shipped or source.file == TASK_HOME:
        return
    for node, name in source.qualified_names:
        if name in LOOSE_TASKS:
            yield source.at(node, f"{name}: a task belongs to a TaskGroup or a JobRunner")
    for call in source.nodes(ast.Attribute):
        if call.attr == "create_task" and _LOOP.search(ast.unparse(call.value)):
            yield source.at(call, "create_task: a task belongs to a TaskGroup or a JobRunner")


def chance_has_a_seed(source: Source) -> Iterator[Violation]:
    """Find randomness that no seed can repeat."""
    if not source.is_shipped or source.file.startswith(RANDOM_HOME):
        return
    unseeded = {node.func for node in source.nodes(ast.Call) if not node.args and not node.keywords}
    for node, name in source.qualified_names:
        module, _, member = name.partition(".")
        shared = module == "random" and member not in ("", "Random")
        system = module == "secrets" or name in ("os.urandom", "uuid.uuid1", "uuid.uuid4")
        if shared or system or (name == "random.Random" and node in unseeded):
            yield source.at(node, f"{name}: randomness comes from the environment")


def nothing_unsafe_is_called(source: Source) -> Iterator[Violation]:
    """Find calls that run text as code or leave a race open."""
    imported = dict(source.qualified_names)
    for node in source.nodes(ast.Call):
        function = node.func
        name = dotted(function)
        if isinstance(function, ast.Name | ast.Attribute):
            name = imported.get(function, name)
        if name in NEVER:
            yield source.at(node, f"{name} is never called")
        for keyword in node.keywords:
            if keyword.arg == "shell" and ast.unparse(keyword.value) != "False":
                yield source.at(node, "no command goes through a shell")


def maps_are_not_flushed(source: Source) -> Iterator[Violation]:
    """Find `flush` on a map: it holds the interpreter for the whole sync; use `os.fdatasync`."""
    if source.role != "store":
        return
    has_maps = any(name == "mmap.mmap" for _, name in source.qualified_names)
    for node in source.nodes(ast.Attribute):
        if node.attr == "flush" and (has_maps or _MAP.search(dotted(node.value))):
            yield source.at(node, "a map is never flushed: it would hold the interpreter")


def arrays_become_bytes_by_a_layout(source: Source) -> Iterator[Violation]:
    """Find arrays of the store whose bytes are taken in whatever order they have.

    What is read from files is bytes already, and columns are no files.
    """
    if source.role != "store" or source.file.startswith(BYTES_HOMES):
        return
    for call in source.nodes(ast.Call):
        function = call.func
        if not isinstance(function, ast.Attribute):
            continue
        is_view = function.attr == "view" and [ast.unparse(each) for each in call.args] in (
            ["np.uint8"],
            ["'u1'"],
            ["'uint8'"],
        )
        if is_view or function.attr in ("tobytes", "tofile"):
            yield source.at(call, f"{function.attr}: layout_bytes gives an array's byte order")


def loops_do_not_swallow_errors(source: Source) -> Iterator[Violation]:
    """Find loops that catch everything and go on: broken for ever, and nobody knows."""
    if not source.is_shipped:
        return
    for loop in source.nodes(ast.While):
        for node in ast.walk(loop):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or dotted(node.type) in ("Exception", "BaseException")
            leaves = any(
                isinstance(inner, ast.Raise | ast.Return | ast.Break) for inner in ast.walk(node)
            )
            if broad and not leaves:
                yield source.at(node, "a loop must not swallow every error")


def only_the_store_has_fallbacks(source: Source) -> Iterator[Violation]:
    """Find what only Linux has outside the store, whose tests alone run without it as well."""
    if not source.is_shipped or source.file.startswith("store/"):
        return
    for node, name in source.qualified_names:
        if name in LINUX_ONLY:
            yield source.at(node, f"{name}: macOS has it not; the store alone has fallbacks")


def only_the_output_module_prints(source: Source) -> Iterator[Violation]:
    """Find verbs that print by themselves: what others wrote would reach the terminal as it is."""
    if source.role != "console" or source.file == OUTPUT_HOME:
        return
    for node, name in source.qualified_names:
        if name in OUTPUTS:
            yield source.at(node, f"{name}: {OUTPUT_HOME} alone prints")
    for call in source.nodes(ast.Call):
        if dotted(call.func) == "print":
            yield source.at(call, f"print: {OUTPUT_HOME} alone prints")


RULES: Final = (
    only_the_clock_reads_clocks,
    tasks_have_owners,
    chance_has_a_seed,
    nothing_unsafe_is_called,
    maps_are_not_flushed,
    arrays_become_bytes_by_a_layout,
    loops_do_not_swallow_errors,
    only_the_store_has_fallbacks,
    only_the_output_module_prints,
)
