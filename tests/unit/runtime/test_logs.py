import io
import json
import logging
from collections.abc import Iterator

import pytest

from ternmq_runtime.logs import (
    REPEATS_MAX,
    LogFormat,
    LoggingSettings,
    LogLevel,
    RepeatLimit,
    configure_logging,
)

logger = logging.getLogger("ternmq_broker.broker")


@pytest.fixture(autouse=True)
def root_logger_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def stream_with(log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LoggingSettings(level=level, format=log_format), stream)
    return stream


def test_console_format_is_one_readable_line() -> None:
    stream = stream_with(LogFormat.CONSOLE)
    logger.info("broker ready name=%s", "b0\nforged line")
    [line] = stream.getvalue().splitlines()
    assert line.endswith(r" INFO    ternmq_broker.broker: broker ready name=b0\nforged line")


HOSTILE = "a@\x1b]0;x\x07\x1b[2J\r\n\x7f\x9b31m\u2028\u202e"


def test_console_format_shows_controls_of_names_and_tracebacks_as_escapes() -> None:
    stream = stream_with(LogFormat.CONSOLE)
    try:
        raise OSError(HOSTILE)
    except OSError:
        logger.exception("client is gone id=%s", HOSTILE)
    first, *rest = stream.getvalue().split("\n")
    assert first.endswith(r"id=a@\x1b]0;x\x07\x1b[2J\r\n\x7f\x9b31m\u2028\u202e")
    assert rest[-2:] == [r"    \x7f\x9b31m\u2028\u202e", ""]
    assert all(line.isprintable() for line in rest)


def test_traceback_cannot_forge_lines_of_the_log() -> None:
    stream = stream_with(LogFormat.CONSOLE)
    logger.info("before")
    time = stream.getvalue()[:23]
    try:
        raise OSError(f"\n{time} ERROR   ternmq_broker.broker: forged\r{time} ERROR   x: forged")
    except OSError as error:
        error.add_note(f"{time} forged")
        logger.warning("failed", exc_info=True, stack_info=True)
    first, second, *rest = stream.getvalue().splitlines()
    assert first.endswith("before")
    assert second.endswith("failed")
    assert len(rest) > 4
    assert all(line.startswith("    ") for line in rest)


def test_json_format_keeps_controls_of_names_as_escapes() -> None:
    stream = stream_with(LogFormat.JSON)
    logger.info("client is gone id=%s", HOSTILE + "\u00fc")
    [line] = stream.getvalue().split("\n")[:-1]
    assert line.isprintable()
    assert line.isascii()  # whatever the encoding of standard error
    assert json.loads(line)["id"] == HOSTILE + "\u00fc"


def test_console_format_keeps_tracebacks_readable() -> None:
    stream = stream_with(LogFormat.CONSOLE)
    try:
        raise OSError("disk is gone")
    except OSError:
        logger.exception("flush failed")
    assert stream.getvalue().splitlines()[-1] == "    OSError: disk is gone"


def test_lines_below_the_level_are_not_written() -> None:
    stream = stream_with(LogFormat.CONSOLE, LogLevel.WARNING)
    logger.info("not written")
    logger.warning("written")
    assert "not written" not in stream.getvalue()
    assert "written" in stream.getvalue()


def test_json_format_has_named_arguments_and_extras_as_members() -> None:
    stream = stream_with(LogFormat.JSON)
    logger.info(
        "log rolled file=%s next=%d took %.1f ms, 100%% full", "000", 1024, 0.25, extra={"cpu": 2}
    )
    written = json.loads(stream.getvalue())
    assert written.pop("ts").endswith("Z")
    assert written == {
        "level": "info",
        "logger": "ternmq_broker.broker",
        "message": "log rolled file=000 next=1024 took 0.2 ms, 100% full",
        "file": "000",
        "next": 1024,
        "cpu": 2,
    }


def test_members_of_a_message_never_replace_those_of_the_line() -> None:
    stream = stream_with(LogFormat.JSON)
    logger.info("odd level=%s", "fatal")
    assert json.loads(stream.getvalue())["level"] == "info"


@pytest.mark.parametrize("arguments", [(), ({"a": 1},)])
def test_messages_with_other_arguments_are_written_as_they_are(arguments: tuple[object]) -> None:
    stream = stream_with(LogFormat.JSON)
    logger.info("100 %% of a=%(a)s" if arguments else "100 % a=1", *arguments)
    written = json.loads(stream.getvalue())
    assert written["message"].startswith("100 %")
    assert set(written) == {"ts", "level", "logger", "message"}


def test_json_format_writes_a_traceback_within_the_line() -> None:
    stream = stream_with(LogFormat.JSON)
    try:
        raise OSError("disk is gone")
    except OSError:
        logger.exception("flush failed")
    [line] = stream.getvalue().splitlines()
    assert "OSError: disk is gone" in json.loads(line)["exception"]


def test_reconfiguring_replaces_the_first_set_up() -> None:
    first = stream_with(LogFormat.CONSOLE)
    second = stream_with(LogFormat.CONSOLE)
    logger.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_repeated_lines_are_counted_instead_of_written() -> None:
    stream = stream_with(LogFormat.CONSOLE)
    for number in range(REPEATS_MAX + 30):
        logger.warning("peer lost address=%s", number)
    logger.warning("something else")
    configure_logging(LoggingSettings(), io.StringIO())  # closes the first: the end of its log
    lines = stream.getvalue().splitlines()
    assert len(lines) == REPEATS_MAX + 2
    assert lines[-1].endswith("line repeated template='peer lost address=%s' held_back=30")


def test_new_window_reports_the_lines_the_old_one_suppressed() -> None:
    limit = RepeatLimit(repeats_max=2, window_s=10)
    assert limit.end_window(1_000) == []
    assert [limit.admits("a", "t") for _ in range(4)] == [True, True, False, False]
    assert limit.admits("b", "t")
    assert limit.end_window(1_009.9) == []
    assert limit.end_window(1_010) == [("a", "t", 2)]
    assert limit.admits("a", "t")
    assert limit.end_window(1_020) == []


def test_clock_set_back_begins_a_new_window() -> None:
    limit = RepeatLimit(repeats_max=1, window_s=10)
    limit.end_window(1_000)
    assert [limit.admits("a", "t") for _ in range(2)] == [True, False]
    assert limit.end_window(500) == [("a", "t", 1)]
    assert limit.admits("a", "t")
