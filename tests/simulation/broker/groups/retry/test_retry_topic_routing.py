import asyncio

import pytest

from ternmq_model.errors import MessageRefused
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import serving, stored


def test_client_may_send_to_its_retry_topic_until_retries_run_out() -> None:
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
            await client.call(service_methods.LOCK_QUEUES, request)
            await client.send("%RETRY%G", properties={"RECONSUME_TIME": "1"}, queue_id=0)
            await asyncio.sleep(0.1)
            assert len(stored(await client.pull("%DLQ%G"))) == 2
            with pytest.raises(MessageRefused, match="RECONSUME_TIME"):
                await client.send("%RETRY%G", properties={"RECONSUME_TIME": "no"}, queue_id=0)

    run_in_virtual_time(main())
