"""What `ternmq topic create` says when brokers do not have a topic."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ternmq_client.admin.descriptions import TopicCreation
from ternmq_console import topic
from ternmq_model.errors import TernError, Unreachable, UsageError

AWAY = Unreachable("b:10911: nobody answers")


def created(name: str, *brokers: str, **errors: TernError) -> TopicCreation:
    return TopicCreation(name, brokers, errors)


def text(row: dict[str, Any]) -> str:
    """Return what a row of JSON tells of brokers."""
    errors = (f"{broker}={error}" for broker, error in row["errors"].items())
    return f"{row['topic']}: {' '.join([*row['brokers'], *errors])}"


def create(
    monkeypatch: pytest.MonkeyPatch, *found: TopicCreation, options: Sequence[str] = ()
) -> Result:
    """Run the verb for topics of which that is found."""

    def ask(_nameserver: str, _question: object) -> Sequence[TopicCreation]:
        return found

    monkeypatch.setattr(topic, "ask", ask)
    return CliRunner().invoke(topic.create, [*(one.topic for one in found), "--yes", *options])


@pytest.mark.parametrize(
    ("found", "code", "told"),
    [
        ((created("A", "a", "b"),), 0, "A: a b"),
        ((created("A", "a", b=AWAY),), 4, f"A: a b={AWAY}"),
        (
            (created("A", "a", b=AWAY), created("B", b=UsageError("no"))),
            4,
            f"A: a b={AWAY}; B: b=no",
        ),
    ],
)
def test_creation_names_brokers_that_have_the_topic_and_those_that_have_not(
    found: Sequence[TopicCreation], code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = create(monkeypatch, *found, options=("--json",))
    assert result.exit_code == code
    content: Any = json.loads(result.stdout)
    rows: list[Any] = content if len(found) > 1 else [content]
    assert [row["queues"] for row in rows] == [8] * len(found)
    assert "; ".join(map(text, rows)) == told


def test_creation_that_no_broker_took_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    result = create(monkeypatch, created("A", a=AWAY, b=AWAY))
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"ternmq: {AWAY}\n"
