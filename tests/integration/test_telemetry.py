"""Telemetry of clients over real services: threads, Arrow rows, and tasks of Spark's sink."""

import asyncio
import threading
from collections.abc import Generator
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from opentelemetry import trace

from ternmq_client.blocking_client import shared_loop_thread
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_pipeline.options.sink_options import write_options
from ternmq_pipeline.sink import writer
from ternmq_pipeline.sink.columns import column_layout
from ternmq_pipeline.sink.identity import BatchIdentity
from ternmq_pipeline.sink.writer import TopicSink
from ternmq_producer.blocking_producer import BlockingProducer, BlockingTransactionProducer
from tests.support.otlp_receiver import exported_telemetry, otlp_receiver
from tests.support.processes import ServiceProcess, running_dev
from tests.support.spark_data import make_topic

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as service:
        yield service


async def consume(consumer: PushConsumer, got: threading.Event) -> None:
    """Run a consumer until its listener got a message."""
    async with consumer:
        assert await asyncio.to_thread(got.wait, 60)


def test_span_is_current_in_the_threads_of_plain_functions(dev: ServiceProcess) -> None:
    """A plain listener sends inside its span; a plain local transaction sees its caller's."""
    for topic in ("orders", "bills"):
        make_topic(dev.nameserver, topic)
    got, threads = threading.Event(), set[int]()
    seen: list[int] = []

    def bill(message: StoredMessage) -> None:
        threads.add(threading.get_ident())
        bills.send(Message("bills", message.body))
        got.set()

    def execute(message: Message, argument: object) -> Resolution:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return Resolution.COMMIT

    def check(message: StoredMessage) -> Resolution:
        return Resolution.COMMIT

    with exported_telemetry() as exports:
        client = ClientConfig(nameservers=(dev.nameserver,), telemetry=exports.telemetry)
        consumer = PushConsumer("billing", "orders", listener=bill, config=FIRST, client=client)
        tracer = exports.tracer_provider.get_tracer("application")

        payers = BlockingTransactionProducer("payers", execute=execute, check=check, client=client)
        with BlockingProducer("billing", client=client) as bills, payers as producer:
            with tracer.start_as_current_span("checkout") as checkout:
                producer.send(Message("orders", b"body"))
            shared_loop_thread().run(consume(consumer, got))
        receiver = exports.flush()
    (send,), (process,) = receiver.of("send orders"), receiver.of("process orders")
    (bill_span,) = receiver.of("send bills")
    assert seen == [checkout.get_span_context().span_id]
    assert send.parent_id == seen[0].to_bytes(8)
    assert process.links == (send.span_id,)
    assert bill_span.parent_id == process.span_id
    assert threading.get_ident() not in threads


def test_rows_of_a_columns_listener_are_linked(dev: ServiceProcess) -> None:
    make_topic(dev.nameserver, "rows")
    got = threading.Event()

    def take(rows: pa.RecordBatch) -> None:
        got.set()

    with exported_telemetry() as exports:
        client = ClientConfig(nameservers=(dev.nameserver,), telemetry=exports.telemetry)
        with BlockingProducer("rows", client=client) as producer:
            producer.send_many([Message("rows", b"1"), Message("rows", b"2")])
        consumer = PushConsumer("g", "rows", columns_listener=take, config=FIRST, client=client)
        shared_loop_thread().run(consume(consumer, got))
        receiver = exports.flush()
    created = {span.span_id for span in receiver.of("create rows")}
    linked = [link for span in receiver.of("process rows") for link in span.links]
    assert len(created) == 2
    assert set(linked) <= created
    assert linked


def test_task_of_sparks_sink_exports_at_its_end(
    dev: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(dev.nameserver, "sunk")
    monkeypatch.setattr(writer, "_task", lambda: SimpleNamespace(partitionId=lambda: 0))
    options = {"nameserver": dev.nameserver, "topic": "sunk", "telemetry": "otel"}
    sink = TopicSink(write_options(options), column_layout([("body", "binary")], topic="sunk"))
    rows = pa.record_batch([pa.array([b"1", b"2"], pa.binary())], names=["body"])
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        staged = sink.write(iter([rows]), BatchIdentity("query", 0))
        assert [span.name for span in receiver.spans] == ["create sunk"] * 2 + ["send sunk"]
        assert receiver.total("messaging.client.sent.messages") == 2
        sink.commit([staged], 0)
        settled = {"messaging_operation_name": "settle"}
        assert receiver.total("messaging.client.operation.duration", **settled) > 0
