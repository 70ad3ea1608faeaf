"""`ternmq store dump` prints what RocketMQ's own decoder reads, and changes nothing."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.console import invoke
from tests.support.rocketmq import contents, manifest, manifest_lines, unpack_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the store."""
    return unpack_store(tmp_path)


def dump(root: Path, *options: str) -> Result:
    """Run the command line."""
    return invoke("store", "dump", str(root), *options)


@pytest.mark.parametrize(("kind", "options"), [("record", ()), ("unit", ("--units",))])
def test_dump_equals_the_manifest_line_by_line(
    root: Path, kind: str, options: tuple[str, ...]
) -> None:
    before = contents(root)
    done = dump(root, *options, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == manifest(root, kind)
    assert done.stdout.splitlines() == list(manifest_lines(root, kind))
    assert contents(root) == before


def test_index_is_printed_entry_by_entry(root: Path) -> None:
    done = dump(root, "--index", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [sum(line["file"] == name for line in lines) for name in names(root)] == [399, 399, 270]
    records = {line["physicalOffset"] for line in manifest(root, "record")}
    for line in lines:
        assert line["kind"] == "index"
        assert line["physicalOffset"] in records
        assert line["slot"] == line["keyHash"] % 500
        assert line["previous"] < line["entry"]


def names(root: Path) -> list[str]:
    """Return the names of the index files."""
    return sorted(path.name for path in (root / "index").iterdir())


def test_missing_store_exits_with_code_3(tmp_path: Path) -> None:
    done = dump(tmp_path / "nothing", "--json")
    assert (done.exit_code, done.stdout) == (3, "")
    assert not (tmp_path / "nothing").exists()


def test_damaged_store_is_printed_as_far_as_readable(root: Path) -> None:
    lines = manifest(root, "record")
    bad = lines[7]
    path = root / "commitlog" / bad["file"]
    data = bytearray(path.read_bytes())
    data[bad["physicalOffset"] + 4] ^= 1
    path.write_bytes(data)
    done = dump(root, "--json")
    assert done.exit_code == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == [*lines[:7], *lines[8:]]
    assert f"{path} offset {bad['physicalOffset']}: {bad['size']} bytes: magic" in done.stderr


def test_table_has_a_line_for_each_record(root: Path) -> None:
    done = dump(root)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 530
