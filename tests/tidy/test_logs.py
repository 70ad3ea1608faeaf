import ast
import io
import json
import logging
from collections import defaultdict

import pytest

from ternmq_runtime.logs import JsonFormatter, event_name
from tests.tidy.log_rules import FIXED, KEY, KEYS, RULES, log_calls
from tests.tidy.source import Source, lines_broken
from tools.project import relative, shipped_files

FILE = "broker/ternmq_broker/x.py"


def templates() -> list[str]:
    """Return the constant templates of all shipped lines."""
    texts = {relative(path): path.read_text() for path in shipped_files()}
    sources = [Source(file, text, ast.parse(text)) for file, text in texts.items()]
    return [call.text for each in sources for call in log_calls(each) if call.text is not None]


@pytest.mark.parametrize(
    ("rule", "text", "lines"),
    [
        (
            "lines_are_events",
            'logger.info("group deleted group=%s topic=%s", group, topic)\n'
            'logger.info(f"group {group}")\n'
            'logger.info("group %s", group)\n'
            'logger.info("group deleted grp=%s", group)\n'
            'logger.info("group deleted: group=%s", group)\n'
            'logger.info("topic created topic=%s by=send", topic)\n'
            'logger.info("topics gone topics=%s of %s", topics, 3)\n'
            'logger.log(level, "group deleted group=%s", group)\n'
            "logger.log(level, text)\n"
            'logger.info("odd group=%s", group, extra={"a": 1})\n'
            'logger.error("odd", exc_info=error)\n'
            'logger.error("wait ends after_s=%.1f", 1.0)\n',
            [2, 3, 4, 5, 6, 7, 9, 10],
        ),
        (
            "lines_are_events",
            'logger.info("odd value=%r", message.body)\nlogger.info("odd value=%r", f(data))\n'
            'logger.info("odd value=%s", len(payload))\n'
            'logger.info("odd folder=%s", config.data)\n',
            [1, 2, 3],
        ),
        (
            "lines_are_events",
            'RouteChange(f"broker {change} broker=%s", (name,))\n'
            'RouteChange("broker removed broker=%s", (name,))\n'
            "logger.info(change.template, *change.args)\n",
            [1],
        ),
        (
            "loggers_are_called",
            'write = logger.info if a else logger.warning\nlogger.info("odd")\n'
            'stack.callback(logger.info, "odd")\n',
            [1, 3],
        ),
    ],
)
def test_rules_find_lines(rule: str, text: str, lines: list[int]) -> None:
    [checked] = [each for each in RULES if each.__name__ == rule]
    assert lines_broken(checked, FILE, text) == lines


def test_lines_with_the_same_event_have_the_same_keys() -> None:
    keys = defaultdict[str, set[tuple[str, ...]]](set)
    for template in templates():
        keys[event_name("ternmq", template)].add(tuple(sorted(KEY.findall(template))))
    assert len(keys) > 250
    assert not {event: each for event, each in keys.items() if len(each) > 1}


def test_members_of_every_line_are_no_keys() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    try:
        raise ValueError
    except ValueError as error:
        failed = (type(error), error, None)
    handler.emit(logging.LogRecord("ternmq_x", logging.INFO, "", 1, "odd", None, failed))
    assert set(json.loads(stream.getvalue())) == FIXED
    assert not FIXED & set(KEYS)


def test_every_key_is_in_use() -> None:
    assert set(KEYS) == {key for template in templates() for key in KEY.findall(template)}
