"""Lines of the audit trail."""

import json
from typing import Any

from ternmq_model.address import Address
from ternmq_remoting.security_event import EventKind, SecurityEvent
from ternmq_security.audit.audit_config import BYTES_LEAST
from ternmq_security.audit.audit_lines import (
    DETAILS_CHARS_MAX,
    TEXT_CHARS_MAX,
    line_of,
    lost_line,
    shortened,
)


def event(**fields: Any) -> SecurityEvent:
    given: dict[str, Any] = {
        "kind": EventKind.ADMIN,
        "user": "root",
        "address": Address("::1", 7),
        "action": "PutTopic",
        "outcome": "allowed",
    }
    return SecurityEvent(**given | fields)


def test_line_has_every_key() -> None:
    line = line_of(event(resource="topic:T", details="topic=T"), 1_500)
    assert line.endswith("}\n")
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "event": "admin",
        "user": "root",
        "claimed": None,
        "certificate": None,
        "address": "[::1]:7",
        "action": "PutTopic",
        "resource": "topic:T",
        "outcome": "allowed",
        "reason": None,
        "details": "topic=T",
        "count": 1,
    }


def test_line_is_one_line_of_ascii_whatever_a_caller_sends() -> None:
    text = 'a\n{"event":"admin"}\x7f\u202e\ud800é'
    line = line_of(event(reason=text, resource=text, details=text), 0)
    assert line.count("\n") == 1
    assert line.isascii()
    assert line[:-1].isprintable()
    assert json.loads(line)["reason"] == text


def test_long_texts_are_cut() -> None:
    found = json.loads(line_of(shortened(event(reason="r" * 9999, details="d" * 9999)), 0))
    assert found["reason"] == "r" * TEXT_CHARS_MAX + "..."
    assert found["details"] == "d" * DETAILS_CHARS_MAX + "..."


def test_longest_line_fits_into_the_smallest_file() -> None:
    text = "\U0010ffff" * 9999
    longest = event(certificate=text, resource=text, reason=text, details=text)
    assert len(line_of(shortened(longest), 0)) < BYTES_LEAST


def test_lost_lines_are_counted_in_a_line() -> None:
    assert json.loads(lost_line(0, 3)) == {
        "time": "1970-01-01T00:00:00.000Z",
        "event": "lost",
        "count": 3,
    }
