import asyncio
from dataclasses import replace

import pytest

from ternmq_broker.inner.inner_record import InnerRecord
from ternmq_broker.retry.retry_sends import retried
from ternmq_model.errors import MessageRefused
from ternmq_model.group_settings import GroupSettings
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import contracts
from tests.support.brokers import serving, stored
from tests.support.virtual_time import run_in_virtual_time

GROUP = GroupSettings("G")


def sent(**properties: str) -> InnerRecord:
    told = {"UNIQ_KEY": "KEY", "RETRY_TOPIC": "A", "ORIGIN_MESSAGE_ID": "FIRST"} | properties
    return InnerRecord(
        topic="%RETRY%G",
        queue_id=0,
        body=b"body",
        properties=told,
        born_at_ms=1,
        born_host=b"\x7f\0\0\1\0\0\0\1",
    )


@pytest.mark.parametrize(
    ("tries", "most", "is_orderly", "is_dead"),
    [
        ("1", None, False, False),
        ("16", None, False, False),
        ("17", None, False, True),
        ("3", "3", False, False),
        ("4", "3", False, True),
        ("40", "100", False, False),
        ("1", None, True, True),
    ],
)
def test_tries_over_the_limit_and_those_of_orderly_groups_are_dead_letters(
    tries: str, most: str | None, is_orderly: bool, is_dead: bool
) -> None:
    record = sent(RECONSUME_TIME=tries, DELAY="5")
    if most is not None:
        record = replace(record, properties={**record.properties, "MAX_RECONSUME_TIMES": most})
    done = retried(record, GROUP, is_orderly=is_orderly)
    assert done.topic == ("%DLQ%G" if is_dead else "%RETRY%G")
    assert done.reconsume_times == int(tries)
    assert not {"RECONSUME_TIME", "MAX_RECONSUME_TIMES"} & done.properties.keys()
    assert ("DELAY" in done.properties) != is_dead
    if is_dead:
        assert done.properties["DLQ_ORIGIN_TOPIC"] == "A"
        assert done.properties["DLQ_ORIGIN_MESSAGE_ID"] == "KEY"


def test_an_ordinary_message_to_a_retry_topic_stays_as_it_is() -> None:
    record = sent()
    assert retried(record, GROUP, is_orderly=True) is record


@pytest.mark.parametrize(
    "properties",
    [
        {"RECONSUME_TIME": "-1"},
        {"RECONSUME_TIME": "x"},
        {"RECONSUME_TIME": "99999999"},
        {"RECONSUME_TIME": "1", "MAX_RECONSUME_TIMES": "²"},
    ],
)
def test_tries_that_are_no_number_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageRefused, match="RECONSUME_TIME"):
        retried(sent(**properties), GROUP, is_orderly=False)


def test_a_client_may_send_to_its_retry_topic_until_the_tries_are_over() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            for tries in ("3", "17"):
                properties = {"RECONSUME_TIME": tries, "RETRY_TOPIC": "A"}
                await client.send("%RETRY%G", tries.encode(), properties=properties, queue_id=0)
            await asyncio.sleep(0.1)
            (again,) = stored(await client.pull("%RETRY%G"))
            assert (again.body, again.reconsume_times) == (b"3", 3)
            (letter,) = stored(await client.pull("%DLQ%G"))
            assert (letter.body, letter.reconsume_times) == (b"17", 17)
            queue = groups.QueueLock(topic="A", queue_id=0)
            request = groups.LockQueuesRequest(group="G", client_id="a@1", queues=[queue])
            await client.call(contracts.LOCK_QUEUES, request)
            await client.send("%RETRY%G", properties={"RECONSUME_TIME": "1"}, queue_id=0)
            await asyncio.sleep(0.1)
            assert len(stored(await client.pull("%DLQ%G"))) == 2
            with pytest.raises(MessageRefused, match="RECONSUME_TIME"):
                await client.send("%RETRY%G", properties={"RECONSUME_TIME": "no"}, queue_id=0)

    run_in_virtual_time(main())
