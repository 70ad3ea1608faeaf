from enum import Enum, IntEnum
from pathlib import Path
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_runtime.settings.values import describe_kind, format_value, parse_value


class FlushMode(Enum):
    SYNC = "sync"
    ASYNC = "async"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    ("raw", "kind", "name", "value"),
    [
        ("broker-a", str, "name", "broker-a"),
        ("", str, "name", ""),
        (7, str, "name", "7"),
        ("8", int, "queues", 8),
        (8, int, "queues", 8),
        ("1_000", int, "queues", 1000),
        ("-1", int, "offset", -1),
        ("64MiB", int, "file_bytes", 64 << 20),
        ("512 kib", int, "file_bytes", 512 << 10),
        ("1GiB", int, "file_bytes", 1 << 30),
        ("4096", int, "file_bytes", 4096),
        ("4096B", int, "file_bytes", 4096),
        (4096, int, "file_bytes", 4096),
        ("0.85", float, "disk_use_max", 0.85),
        (1, float, "disk_use_max", 1.0),
        ("30s", float, "timeout_s", 30.0),
        ("5m", float, "timeout_s", 300.0),
        ("2h", int, "timeout_s", 7200),
        ("1.5 s", float, "timeout_s", 1.5),
        ("500ms", float, "timeout_s", 0.5),
        ("3d", int, "retention_s", 259_200),
        (30, float, "timeout_s", 30.0),
        ("0.25", float, "timeout_s", 0.25),
        ("30s", int, "hold_ms", 30_000),
        ("500ms", int, "hold_ms", 500),
        ("500", int, "hold_ms", 500),
        ("true", bool, "create_topics", True),
        ("OFF", bool, "create_topics", False),
        (True, bool, "create_topics", True),
        (False, bool, "create_topics", False),
        ("async", FlushMode, "flush_mode", FlushMode.ASYNC),
        (" ASYNC ", FlushMode, "flush_mode", FlushMode.ASYNC),
        ("2", Level, "level", Level.HIGH),
        ("/var/lib", Path, "data", Path("/var/lib")),
        ("~/data", Path, "data", Path.home() / "data"),
        ("none", int | None, "limit", None),
        ("", Optional[int], "limit", None),  # noqa: UP045
        ("7", int | None, "limit", 7),
        ("a:1, b:2,", tuple[str, ...], "addresses", ("a:1", "b:2")),
        ("", tuple[str, ...], "addresses", ()),
        (["a:1", "b:2"], tuple[str, ...], "addresses", ("a:1", "b:2")),
        ([1, "2"], tuple[int, ...], "levels", (1, 2)),
        ("1s,5s", tuple[int, ...], "delays_s", (1, 5)),
    ],
)
def test_value_is_parsed_by_its_type_and_unit(
    raw: object, kind: object, name: str, value: object
) -> None:
    assert parse_value(raw, kind, name) == value
    assert type(parse_value(raw, kind, name)) is type(value)


@pytest.mark.parametrize(
    ("raw", "kind", "name", "rule"),
    [
        ("many", int, "queues", "must be a whole number"),
        ("1.5", int, "queues", "must be a whole number"),
        ("", int, "queues", "must be a whole number"),
        ("9" * 400, int, "queues", "must be a whole number"),
        (True, int, "queues", "must be a whole number"),
        (["1"], int, "queues", "must be a whole number"),
        ("64MB", int, "file_bytes", "must be a size such as"),
        ("30s", int, "file_bytes", "must be a size such as"),
        ("1KiB", int, "queues", "must be a whole number"),
        ("30s", int, "queues", "must be a whole number"),
        ("0.5", int, "timeout_s", "must be a duration .* whole number of seconds"),
        ("10 minutes", float, "timeout_s", "must be a duration .* a number of seconds"),
        ("1h", float, "disk_use_max", "must be a number"),
        ("nan", float, "disk_use_max", "must be a number"),
        ("inf", float, "timeout_s", "must be a duration"),
        ("maybe", bool, "create_topics", "must be true or false"),
        (2, bool, "create_topics", "must be true or false"),
        ("asink", FlushMode, "flush_mode", "must be one of sync, async"),
        (True, FlushMode, "flush_mode", "must be one of sync, async"),
        (" ", Path, "data", "must be a path, not empty"),
        ("~no-such-user/data", Path, "data", "names a home directory that is not there"),
        (True, str, "name", "must be text"),
        ({"a": 1}, str, "name", "must be text"),
        ("x", int | None, "limit", "must be a whole number"),
        (3, tuple[str, ...], "addresses", "must be a list, or text separated by commas"),
        ("1,x", tuple[int, ...], "levels", "must be a whole number"),
    ],
)
def test_bad_value_is_refused_with_its_rule(
    raw: object, kind: object, name: str, rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_value(raw, kind, name)


@pytest.mark.parametrize("kind", [dict, bytes, int | str, list[str]])
def test_unsupported_setting_type_is_a_programming_error(kind: object) -> None:
    with pytest.raises(TypeError, match="'table'"):
        parse_value("x", kind, "table")


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (None, "limit", "none"),
        (True, "create_topics", "true"),
        (FlushMode.SYNC, "flush_mode", "sync"),
        (("a", "b"), "addresses", "a,b"),
        (1 << 30, "file_bytes", "1GiB"),
        (1000, "file_bytes", "1000"),
        (0, "file_bytes", "0"),
        (30.0, "timeout_s", "30s"),
        (0.001, "interval_s", "1ms"),
        (0, "timeout_s", "0s"),
        (7200, "timeout_s", "2h"),
        (500, "hold_ms", "500ms"),
        (8, "queues", "8"),
        (Path("/var"), "data", "/var"),
    ],
)
def test_value_is_written_as_one_would_give_it(value: object, name: str, text: str) -> None:
    assert format_value(value, name) == text


@given(st.integers(0, 1 << 45), st.sampled_from(["file_bytes", "queues"]))
def test_every_written_whole_number_is_read_back(value: int, name: str) -> None:
    assert parse_value(format_value(value, name), int, name) == value


@given(st.integers(0, 10**9))
def test_every_written_duration_is_read_back(in_ms: int) -> None:
    assert parse_value(format_value(in_ms, "hold_ms"), int, "hold_ms") == in_ms
    in_s = in_ms / 1000
    assert parse_value(format_value(in_s, "wait_s"), float, "wait_s") == in_s


def test_types_are_described_in_words() -> None:
    assert describe_kind(tuple[str, ...], "addresses") == "a list separated by commas"
    assert describe_kind(int | None, "limit") == "a whole number, or none"
    assert describe_kind(Path, "data") == "a path"
    assert describe_kind(str, "name") == "text"
