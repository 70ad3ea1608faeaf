import json

import pytest

from ternmq_client.admin.explain.story import story_of
from ternmq_console.message.explain import print_story
from tests.support.messages_told import NOW_MS, facts, group, letter, record

STORY = story_of(
    facts(record(at_ms=NOW_MS), letter(), groups=[group("other", committed=9)], gaps=["a gap"])
)


def test_story_is_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_story(STORY, "table")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "message KEY of orders"
    assert "group G: dead letter" in lines
    assert "group other: done" in lines
    assert "  3 deliveries failed; the letter is in %DLQ%G" in lines
    assert lines[lines.index("not known") + 1] == "  a gap"


def test_story_is_one_document_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_story(STORY, "json")
    document = json.loads(capsys.readouterr().out)
    assert document["message_id"] == "KEY"
    assert document["topics"] == ["orders"]
    assert document["events"][0]["time"] == "2026-11-20T23:09:06.999Z"
    (dead, other) = document["groups"]
    assert (dead["group"], dead["state"], dead["queue"]) == ("G", "dead letter", 0)
    assert (other["state"], other["broker"], other["topic"]) == ("done", "a", "orders")
    assert "a gap" in document["unknown"]
    assert isinstance(document["storage"], list)


def test_each_queue_is_named_when_a_message_was_stored_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    twin = record(begin=7000, queue_id=1, offset_message_id="0B" * 16)
    print_story(story_of(facts(record(), twin, groups=[group(committed=9)])), "table")
    text = capsys.readouterr().out
    assert "group G: done (orders@a:0)" in text
    assert "group G: not subscribed (orders@a:1)" not in text


def test_message_of_no_group_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_story(story_of(facts(record())), "table")
    assert "no consumer group is found that knows its topic" in capsys.readouterr().out
    print_story(story_of(facts()), "table")
    text = capsys.readouterr().out
    assert "message KEY of an unknown topic" in text
    assert "no consumer group" not in text, "that of a half message, whose topic is not known"
