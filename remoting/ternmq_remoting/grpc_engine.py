"""Choice of gRPC's I/O engine, which gRPC reads from the environment when it is loaded."""

import re
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

VARIABLE: Final = "GRPC_EXPERIMENTS"
POLLING: Final = "-event_engine_client,-event_engine_listener"
"""Value that makes the thread which waits for the socket also read it.

gRPC 1.80 gave Python an engine with threads of its own: every message changes threads twice more,
so that a round trip of 1 KiB on a stream takes 1.9 times as long, and 1.6 times the CPU.
"""

_VERSIONS: Final = ((1, 80), (1, 85))
"""First and last version with both engines. Later ones may warn of an unknown name on stderr."""


def choose_engine(environ: MutableMapping[str, str], version: tuple[int, int] | None) -> None:
    """Set the variable for a version of gRPC with both engines, unless the user has set it."""
    if version is not None and _VERSIONS[0] <= version <= _VERSIONS[1]:
        environ.setdefault(VARIABLE, POLLING)


def installed_version() -> tuple[int, int] | None:
    """Return the version of gRPC without loading gRPC; None = unknown."""
    spec = find_spec("grpc")
    if spec is None or spec.origin is None:
        return None
    try:
        # `importlib.metadata` would add 36 ms to every start.
        text = Path(spec.origin).with_name("_grpcio_metadata.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"(\d+)\.(\d+)", text)
    return None if found is None else (int(found[1]), int(found[2]))
