from dataclasses import replace

import pytest

from ternmq_broker.groups.retry.group_topics import GroupTopics
from ternmq_broker.state.topics import TopicTable
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import PermissionRefused, RefusedError
from ternmq_model.group_settings import GroupSettings
from ternmq_model.route import Permission, TopicConfig
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

GROUP = GroupSettings("G", retry_queues=2)


def made() -> tuple[GroupTopics, TopicTable, list[list[str]]]:
    """Return a group's topics, their table, and the topics in it after each creation."""
    table, created = TopicTable(DataVersion(0)), list[list[str]]()
    topics = GroupTopics(
        table, VirtualClock(), lambda: created.append([each.topic for each in table])
    )
    return topics, table, created


def test_group_topics_are_created_once_readable_and_writable() -> None:
    async def main() -> None:
        topics, table, created = made()
        assert topics.retry(GROUP) == topics.retry(GROUP) == TopicConfig("%RETRY%G", 2, 2)
        assert topics.dead_letters("G") == TopicConfig("%DLQ%G", 1, 1)
        assert created == [["%RETRY%G"], ["%DLQ%G", "%RETRY%G"]]
        assert [each.permissions.text for each in table] == ["RW-", "RW-"]

    run_in_virtual_time(main())


def test_retry_topic_grows_with_the_settings_and_never_shrinks() -> None:
    async def main() -> None:
        topics, table, _ = made()
        table.put(TopicConfig("%RETRY%G", 3, 1, retention_ms=9), now_ms=1)
        assert topics.retry(GROUP) == TopicConfig("%RETRY%G", 3, 2, retention_ms=9)
        assert topics.retry(replace(GROUP, retry_queues=1)).read_queues == 3

    run_in_virtual_time(main())


def test_write_protected_dead_letter_topic_stays_protected() -> None:
    async def main() -> None:
        topics, table, _ = made()
        table.put(TopicConfig("%DLQ%G", 1, 1, Permission.READ), now_ms=1)
        with pytest.raises(PermissionRefused, match="%DLQ%G"):
            topics.dead_letters("G")

    run_in_virtual_time(main())


def test_slave_has_its_masters_group_topics_and_creates_none() -> None:
    async def main() -> None:
        table = TopicTable(DataVersion(0))
        topics = GroupTopics(table, VirtualClock(), lambda: None, is_slave=True)
        with pytest.raises(RefusedError, match="created by the master"):
            topics.retry(GROUP)
        assert not list(table)
        table.put(TopicConfig("%RETRY%G", 2, 2), now_ms=1)
        assert topics.retry(GROUP) == TopicConfig("%RETRY%G", 2, 2)

    run_in_virtual_time(main())
