import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from ternmq_model.queue import MessageQueue
from ternmq_runtime.logs import (
    REPEATS_MAX,
    LogFormat,
    LoggingSettings,
    LogLevel,
    RepeatLimit,
    Services,
    configure_logging,
    event_name,
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
    logging.captureWarnings(False)


def stream_with(
    log_format: LogFormat, level: LogLevel = LogLevel.INFO, *, services: Services | None = None
) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LoggingSettings(level=level, format=log_format), stream, services=services)
    return stream


def members_of(stream: io.StringIO) -> dict[str, object]:
    """Return the members of the newest line."""
    members: dict[str, object] = json.loads(stream.getvalue().splitlines()[-1])
    return members


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


def test_extra_that_is_no_value_of_json_is_its_text() -> None:
    stream = stream_with(LogFormat.JSON)
    logger.info("measured", extra={"rate": float("nan"), "rows": {("a", 1): 2}, "cpu": 2})
    written = members_of(stream)
    assert (written["rate"], written["rows"], written["cpu"]) == ("nan", "{('a', 1): 2}", 2)


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
        "event": "log_rolled",
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
    assert set(written) == {"ts", "level", "logger", "event", "message"}


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
    assert lines[-1].endswith("line repeated repeated=peer_lost count=30")


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


@pytest.mark.parametrize(
    ("name", "repeated"), [(logger.name, "peer_lost"), ("grpc._cython", "grpc._cython")]
)
def test_summary_of_repeated_lines_has_event_and_count(name: str, repeated: str) -> None:
    stream = stream_with(LogFormat.JSON)
    for number in range(REPEATS_MAX + 30):
        logging.getLogger(name).warning("peer lost address=%s", number)
    configure_logging(LoggingSettings(), io.StringIO())
    members = members_of(stream)
    assert (members["event"], members["repeated"], members["count"]) == (
        "line_repeated",
        repeated,
        30,
    )


@pytest.mark.parametrize(
    ("template", "event"),
    [
        ("session opened client=%s address=%s", "session_opened"),
        ("service stopped", "service_stopped"),
        ("queue released, after a reset queue=%s", "queue_released_after_a_reset"),
        ("tables differ from the master's err=%s", "tables_differ_from_the_masters"),
        ("%s", "ternmq_broker.broker"),
    ],
)
def test_event_is_named_by_the_words_before_the_first_key(template: str, event: str) -> None:
    assert event_name("ternmq_broker.broker", template) == event


def test_event_of_another_package_is_its_logger() -> None:
    assert event_name("py.warnings", "/x.py:1: DeprecationWarning: old name") == "py.warnings"


def test_arguments_never_change_the_event() -> None:
    stream = stream_with(LogFormat.JSON)
    logger.info("group put group=%s", "forged event=x")
    assert members_of(stream)["event"] == "group_put"


def test_message_queue_has_topic_broker_and_queue_as_members() -> None:
    stream = stream_with(LogFormat.JSON, services={"": {"broker": "own"}})
    logger.info("queue is gone queue=%s offset=%s", MessageQueue("orders", "broker-b", 3), 7)
    members = members_of(stream)
    assert members["message"] == "queue is gone queue=orders@broker-b:3 offset=7"
    assert [members[key] for key in ("topic", "broker", "queue", "offset")] == [
        "orders",
        "broker-b",
        3,
        7,
    ]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_has_not_are_texts(number: float) -> None:
    stream = stream_with(LogFormat.JSON)
    logger.info("share known used=%s", number)
    assert members_of(stream)["used"] == str(number)


def test_services_of_one_process_have_members_of_their_own() -> None:
    services = {"ternmq_nameserver": {"nameserver": "h:1"}, "": {"broker": "broker-a"}}
    stream = stream_with(LogFormat.JSON, services=services)
    logging.getLogger("ternmq_nameserver.service").info("setting put key=%s", "k")
    assert members_of(stream)["nameserver"] == "h:1"
    assert "broker" not in members_of(stream)
    logging.getLogger("ternmq_runtime.service").info("service stopped")
    assert members_of(stream)["broker"] == "broker-a"
    logger.info("members not listed broker=%s", "broker-b")
    assert members_of(stream)["broker"] == "broker-b"


def test_lines_in_a_span_have_its_ids() -> None:
    stream = stream_with(LogFormat.JSON)
    with TracerProvider().get_tracer("test").start_as_current_span("process") as span:
        logger.info("listener failed")
    context = span.get_span_context()
    members = members_of(stream)
    assert members["trace_id"] == trace.format_trace_id(context.trace_id)
    assert members["span_id"] == trace.format_span_id(context.span_id)
    logger.info("outside of the span")
    assert not {"trace_id", "span_id"} & set(members_of(stream))


def test_lines_without_opentelemetry_have_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    stream = stream_with(LogFormat.JSON)
    logger.info("service stopped")
    assert "trace_id" not in members_of(stream)
    assert "opentelemetry.trace" not in sys.modules


def test_warnings_of_python_are_lines_of_the_log() -> None:
    stream = stream_with(LogFormat.JSON)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    members = members_of(stream)
    assert members["event"] == "py.warnings"
    assert "old name" in str(members["message"])
