"""File of the audit trail and earlier ones: `audit.jsonl`, the one before as `audit.jsonl.1`."""

import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ternmq_runtime.durable_file import open_private


def append(path: Path, data: bytes, *, max_bytes: int, files: int) -> None:
    """Append whole lines to the file, which no other user may read. Blocks.

    The file must not be a link. It is opened for each call, so that another program may move it
    away. Above `max_bytes` a new one begins; so many `files` are kept, at least 2.

    Raises:
        OSError: The disk refused. The file has none of the lines.
    """
    with suppress(FileNotFoundError):
        if 0 < path.stat().st_size > max_bytes - len(data):
            names = [path, *(path.with_name(f"{path.name}.{each}") for each in range(1, files))]
            for older, newer in pairwise(reversed(names)):
                with suppress(FileNotFoundError):
                    newer.replace(older)
    with open_private(path, "ab") as file:
        # Past the buffer of the file, which would write its rest at the end, after the cut.
        end, descriptor = file.tell(), file.fileno()
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, end)
            raise
