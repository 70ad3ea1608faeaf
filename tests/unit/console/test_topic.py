"""What `ternmq topic create` says when brokers do not have a topic."""

import json
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from ternmq_client.descriptions import TopicCreation
from ternmq_console import topic
from ternmq_model.errors import TernError, Unreachable, UsageError

AWAY = Unreachable("b:10911: nobody answers")


def created(name: str, *brokers: str, **errors: TernError) -> TopicCreation:
    return TopicCreation(name, brokers, errors)


@pytest.mark.parametrize(
    ("found", "code", "rows"),
    [
        ([created("A", "a", "b")], 0, {"topic": "A", "brokers": ["a", "b"], "errors": {}}),
        ([created("A", "a", b=AWAY)], 4, {"topic": "A", "brokers": ["a"], "errors": {"b": "…"}}),
        (
            [created("A", "a", b=AWAY), created("B", b=UsageError("no"))],
            4,
            [
                {"topic": "A", "brokers": ["a"], "errors": {"b": "…"}},
                {"topic": "B", "brokers": [], "errors": {"b": "no"}},
            ],
        ),
    ],
)
def test_creation_names_brokers_that_have_the_topic_and_those_that_have_not(
    found: Sequence[TopicCreation], code: int, rows: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "ask", lambda *_: found)
    names = [one.topic for one in found]
    result = CliRunner().invoke(topic.create, [*names, "--json"])
    assert result.exit_code == code
    told = json.loads(result.stdout.replace(str(AWAY), "…"))
    for row in told if isinstance(told, list) else [told]:
        assert row.pop("queues") == 8
    assert told == rows


def test_creation_that_no_broker_took_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "ask", lambda *_: [created("A", a=AWAY, b=AWAY)])
    result = CliRunner().invoke(topic.create, ["A"])
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"ternmq: {AWAY}\n"
