"""The store that Apache RocketMQ wrote, for tests."""

import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ternmq_testing.memory.memory_files import MemoryFileSystem, Node

Line = Mapping[str, Any]

ARCHIVE: Final = Path(__file__).parents[1] / "compat" / "data" / "rocketmq-store.tar.gz"


def unpack_store(folder: Path) -> Path:
    """Put a copy of the store below `folder`; return its data directory."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def manifest_lines(root: Path, kind: str) -> Sequence[str]:
    """Return the manifest's lines of one kind, as they are written."""
    text = (root.parent / "manifest.jsonl").read_text(encoding="utf-8")
    found = [line for line in text.splitlines() if json.loads(line)["kind"] == kind]
    assert len(found) == 529
    return found


def manifest(root: Path, kind: str) -> Sequence[Line]:
    """Return the manifest's lines of one kind, parsed."""
    return [json.loads(line) for line in manifest_lines(root, kind)]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below `folder`."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def copy_in(files: MemoryFileSystem, folder: Path, root: Path) -> None:
    """Put every file below `folder` on a disk in memory, below `root`."""
    for name, content in contents(folder).items():
        data = np.frombuffer(content, dtype=np.uint8).copy()
        files.make_folder((root / name).parent)
        files.nodes[root / name] = Node(data, data.copy(), len(data))


def copy_out(files: MemoryFileSystem, root: Path, folder: Path) -> Path:
    """Write a store in memory below `folder`; return its data directory."""
    for path, node in files.nodes.items():
        real = folder / path.relative_to(root)
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(node.data.tobytes())
    return folder
