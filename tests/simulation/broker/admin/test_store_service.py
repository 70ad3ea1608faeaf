import asyncio

from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import serving


def test_store_reports_its_counters() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            await sender.send(*(sender.record("A") for _ in range(40)))
            await asyncio.sleep(10.5)
            await client.pull("A", group="G")
            told = await client.call(service_methods.DESCRIBE_STORE, admin.DescribeStoreRequest())
            assert (told.puts, told.puts_failed, told.put_messages) == (1, 0, 40)
            assert (told.gets_found, told.got_messages, told.gets_from_disk) == (1, 32, 0)
            assert sum(each.puts for each in told.put_times) == 1
            assert told.put_times[-1].below_ms == 0
            assert [(rate.span_s, rate.put_messages) for rate in told.rates] == [
                (span_s, 4) for span_s in (10, 60, 600)
            ]
            [topic] = told.topics
            assert (topic.topic, topic.messages, topic.bytes) == ("A", 40, told.put_bytes)
            [behind] = told.groups
            assert (behind.group, behind.topic, behind.messages) == ("G", "A", 8)
            assert behind.bytes == 9 * told.put_average_bytes
            assert (told.dispatch_behind_bytes, told.dispatch_behind_ms) == (0, 0)
            assert (told.log_files, told.queues, told.failure) == (1, 1, "")

    run_in_virtual_time(main())
