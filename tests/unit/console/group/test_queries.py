import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from click.testing import CliRunner

from ternmq_client.admin.descriptions import (
    BrokerList,
    GroupDescription,
    GroupMember,
    ProducerMember,
    UnreachableBroker,
)
from ternmq_console.cli.exit_codes import UNREACHABLE
from ternmq_console.group import queries
from ternmq_console.main import ternmq
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups

STATE = groups.RunningState(
    queues=[
        groups.QueueState(topic="A", broker_name="a", queue_id=1, messages=3, commit_offset=7),
        groups.QueueState(topic="A", broker_name="a", queue_id=2, messages=4),
    ],
    facts={"version": "1", "failures": "0"},
)

AWAY = UnreachableBroker("b", ("h:3",), "nobody\nlistens")


class Admin:
    """A cluster with a group of two members, the second of which does not answer."""

    async def describe_group(self, group: str) -> GroupDescription:
        subscribed = (("A", "*"),)
        members = [GroupMember(name, "h:1", subscribed, 1_000) for name in ("here", "silent")]
        return GroupDescription(group, tuple(members), ())

    async def consumer_state(self, group: str, client_id: str) -> groups.RunningState:
        if client_id == "silent":
            raise refusal(ResponseCode.CONSUMER_NOT_ONLINE, "it says nothing")
        return STATE

    async def producers(self, group: str) -> BrokerList[ProducerMember]:
        found = [ProducerMember(group or "any", "p", "h:2", 2_000)]
        return BrokerList(found, [AWAY] if group == "partly" else [])


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `Admin` answer."""

    def ask(nameserver: str, question: Callable[[Any], Coroutine[None, None, object]]) -> object:
        return asyncio.run(question(Admin()))

    monkeypatch.setattr(queries, "ask", ask)


def told(*arguments: str) -> str:
    done = CliRunner().invoke(ternmq, ["group", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_members_are_listed_with_their_state_where_they_tell_it() -> None:
    here, silent = json.loads(told("consumers", "G", "--state", "--output", "json"))
    assert here == {
        "client_id": "here",
        "address": "h:1",
        "subscriptions": {"A": "*"},
        "connected": "1970-01-01T00:00:01.000Z",
        "queues": 2,
        "in_hand": 7,
        "facts": {"failures": "0", "version": "1"},
    }
    assert (silent["queues"], silent["in_hand"]) == (None, None)
    assert silent["facts"] == {"error": "it says nothing"}
    heading, *lines = told("consumers", "G").splitlines()
    assert heading.split() == ["client", "id", "address", "subscriptions", "connected"]
    assert [line.split()[0] for line in lines] == ["here", "silent"]


def test_state_of_one_member_has_a_row_for_each_queue() -> None:
    found = json.loads(told("consumers", "G", "here", "--output", "json"))
    assert [queue["messages"] for queue in found["queues"]] == [3, 4]
    assert found["queues"][0]["commit_offset"] == 7
    assert found["queues"][0]["pulled"] is None
    lines = told("consumers", "G", "here").splitlines()
    assert lines[0].split() == ["client", "id", "here"]
    assert lines[-1].split()[:3] == ["A", "a", "2"]


@pytest.mark.parametrize(("arguments", "group"), [((), "any"), (("G",), "G")])
def test_producers_are_listed_of_one_group_or_of_all(
    arguments: tuple[str, ...], group: str
) -> None:
    (row,) = json.loads(told("producers", *arguments, "--output", "json"))
    assert (row["group"], row["connected"]) == (group, "1970-01-01T00:00:02.000Z")


def test_partial_list_is_printed_with_a_line_for_each_silent_broker() -> None:
    done = CliRunner().invoke(ternmq, ["group", "producers", "partly", "-o", "json"])
    assert [row["client_id"] for row in json.loads(done.stdout)] == ["p"]
    assert done.stderr == "ternmq: no answer from broker b (h:3): nobody listens\n"
    assert done.exit_code == UNREACHABLE
