"""Set-up of logging, once, for server processes only: a library adds no handlers.

There are two formats: `console` for people and `json`, one object a line, for collectors. A
repeated line (same logger, same template) is written `REPEATS_MAX` times in `WINDOW_S`. Further
lines are counted, and the count is written before the first line of a later window, or at the end.

A template is `words of the event key=%s other_key=%s`. Its words never change with the arguments,
so that they name the event.
"""

import logging
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import IO, Final

from ternmq_model.clock import utc_text
from ternmq_model.printable_text import printable, printable_json
from ternmq_model.queue import MessageQueue

REPEATS_MAX = 20
"""Most lines of one template in one window: enough for a restart of 16 brokers."""

WINDOW_S = 10.0

_REPEATED: Final = "line repeated repeated=%s count=%d"
"""Template of the line with the number of omitted ones, in the name of their logger."""

Services = Mapping[str, Mapping[str, str]]
"""Members of all lines of a service, by the top package of their loggers; "" = of all others."""


class LogLevel(Enum):
    """The least severe lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(Enum):
    """The format of a line."""

    CONSOLE = "console"
    JSON = "json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggingSettings:
    """Settings of a service's log on standard error."""

    level: LogLevel = LogLevel.INFO
    """The least severe lines that are written."""

    format: LogFormat = LogFormat.CONSOLE
    """`console` for people, `json` (one object a line) for log collectors."""


def configure_logging(
    settings: LoggingSettings, stream: IO[str] | None = None, *, services: Services | None = None
) -> None:
    """Send the log of this process only to `stream` (default: standard error).

    Another call replaces the set-up of the first one. Warnings of Python are lines of the log, too.

    Args:
        settings: Level and format.
        stream: Stream that stays open.
        services: Members that tell the services of one process apart, in JSON.
    """
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _LimitedHandler):
            root.removeHandler(handler)
            handler.close()
    is_json = settings.format is LogFormat.JSON
    formatter = JsonFormatter(services) if is_json else ConsoleFormatter()
    handler = _LimitedHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(formatter)
    root.addHandler(handler)
    root.setLevel(settings.level.name)
    logging.captureWarnings(True)


class ConsoleFormatter(logging.Formatter):
    """Writes `2026-01-31 12:00:00.000 INFO    ternmq_broker.broker: broker ready name=b0`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s")
        self.datefmt = "%Y-%m-%d %H:%M:%S"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message on one line, with control characters of names escaped."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the message and its indented traceback. Only the message begins with a time."""
        return printable(super().format(record), keep="\n").replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """Writes one JSON object a line.

    Each object has `ts` (UTC, ISO 8601), `level`, `logger`, `event` and `message`. Each `key=value`
    of the message and each item of `extra=` is a member of its own; a `MessageQueue` has the
    members `topic`, `broker` and `queue`. `exception` is the traceback. `trace_id` and `span_id`
    are those of the OpenTelemetry span that is current where the line is logged.

    Args:
        services: Members of all lines of a service. Those of the message replace them.
    """

    def __init__(self, services: Services | None = None) -> None:
        super().__init__()
        self._services: Services = {} if services is None else services

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as text without line breaks."""
        package = record.name.partition(".")[0]
        service = self._services.get(package, self._services.get("", {}))
        fixed: dict[str, object] = {
            "ts": utc_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event_name(record.name, str(record.msg)),
            "message": record.getMessage(),
        }
        variable = {**service, **_current_span(), **_named_arguments(record), **_extras(record)}
        members = fixed | variable | fixed  # the first names the order, the last has the values
        if record.exc_info and record.exc_info[0] is not None:
            members["exception"] = self.formatException(record.exc_info)
        # ASCII only: a stream may write other characters as escapes that are no JSON.
        return printable_json(members, ensure_ascii=True, default=str)


@lru_cache(maxsize=1_024)
def event_name(logger: str, template: str) -> str:
    """Return the words before the first key of a template: `session_opened`.

    Other packages write values among their words, so their event is the name of the logger.
    """
    if not logger.startswith("ternmq") and template != _REPEATED:
        return logger
    words = _FIRST_VALUE.split(template, maxsplit=1)[0].replace("'", "").lower()
    return "_".join(_WORD.findall(words)) or logger


_FIRST_VALUE: Final = re.compile(r"\w+=|%")

_WORD: Final = re.compile(r"[a-z0-9]+")


def _current_span() -> Mapping[str, str]:
    """Return the ids of the current span. Imports nothing: no import, no span."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


_DIRECTIVE = re.compile(r"(?:(\w+)=)?(%[#0\- +]*\d*(?:\.\d+)?[a-zA-Z])|%%")

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def _named_arguments(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the arguments that the template names: "rolled file=%s" gives `file`."""
    if not isinstance(record.args, tuple):
        return {}
    directives = [found for found in _DIRECTIVE.finditer(str(record.msg)) if found[2]]
    if len(directives) != len(record.args):
        return {}
    members: dict[str, object] = {}
    for found, argument in zip(directives, record.args, strict=True):
        if isinstance(argument, MessageQueue):
            names = {"topic": argument.topic, "broker": argument.broker_name}
            members = {**names, **members, found[1] or "queue": argument.queue_id}
        elif found[1]:
            members[found[1]] = _json_value(argument)
    return members


def _json_value(argument: object) -> object:
    """Return the argument if it is a number of JSON or nothing, or else its text."""
    if isinstance(argument, float) and not math.isfinite(argument):
        return str(argument)
    return argument if isinstance(argument, int | float | None) else str(argument)


def _extras(record: logging.LogRecord) -> Mapping[str, object]:
    extras = vars(record).items()
    return {name: _json_value(one) for name, one in extras if name not in _STANDARD_ATTRIBUTES}


class RepeatLimit:
    """Limit of repeated lines. Pure: the time comes with the lines.

    All templates share one window, so the counts are dropped together.
    """

    def __init__(self, repeats_max: int = REPEATS_MAX, window_s: float = WINDOW_S) -> None:
        self._repeats_max = repeats_max
        self._window_s = window_s
        self._began_s = 0.0
        self._seen: Counter[tuple[str, str]] = Counter()

    def end_window(self, now_s: float) -> list[tuple[str, str, int]]:
        """Begin a new window if the present one is over. Return the omitted lines of the old one.

        Returns:
            Logger, template and number of omitted lines, for each template above the limit.
        """
        if self._began_s <= now_s < self._began_s + self._window_s:  # the clock may be set back
            return []
        seen, self._seen, self._began_s = self._seen, Counter(), now_s
        return [
            (logger, template, count - self._repeats_max)
            for (logger, template), count in seen.items()
            if count > self._repeats_max
        ]

    def admits(self, logger: str, template: str) -> bool:
        """Count one line. Return whether to write it."""
        self._seen[logger, template] += 1
        return self._seen[logger, template] <= self._repeats_max


class _LimitedHandler(logging.StreamHandler[IO[str]]):
    """Handler that writes the lines that `RepeatLimit` admits. `logging` calls it under a lock."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        self._limit = RepeatLimit()

    def emit(self, record: logging.LogRecord) -> None:
        self._emit_held_back(record.created)
        if self._limit.admits(record.name, str(record.msg)):
            super().emit(record)

    def close(self) -> None:
        """Write the numbers of omitted lines. The stream stays open."""
        self._emit_held_back(float("inf"))
        super().close()

    def _emit_held_back(self, now_s: float) -> None:
        for logger, template, count in self._limit.end_window(now_s):
            summary = logging.makeLogRecord(
                {
                    "name": logger,
                    "levelname": "WARNING",
                    "levelno": logging.WARNING,
                    "msg": _REPEATED,
                    "args": (event_name(logger, template), count),
                }
            )
            super().emit(summary)
