"""Traces of messages by OpenTelemetry, on a simulated cluster and at a receiver."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from ternmq_client.config import ClientConfig
from ternmq_client.telemetry.telemetry import TRACE_PARENT, Telemetry
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ConsumeStatus
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.names import DEAD_LETTER_PREFIX
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.staging.staging_producer import StagingProducer
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.otlp_receiver import (
    ExportedTelemetry,
    OtlpReceiver,
    ReceivedSpan,
    exported_telemetry,
)
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "orders"
FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
Scene = Callable[[SimulatedCluster, ExportedTelemetry, ClientConfig], Awaitable[None]]


def exported(scene: Scene, trace_ratio: float = 1.0) -> OtlpReceiver:
    """Return what a scene of clients with telemetry exported."""
    with exported_telemetry(trace_ratio) as exports:
        client = ClientConfig(nameservers=(NAMESERVER,), telemetry=exports.telemetry)

        async def main() -> None:
            async with simulated_cluster(brokers=["a"]) as cluster:
                await cluster.put_topic(TOPIC, 1)
                await scene(cluster, exports, client)

        run_in_virtual_time(main())
        return exports.flush()


def consumer_of(
    cluster: SimulatedCluster, client: ClientConfig, listener: object, **options: object
) -> PushConsumer:
    given = {"listener": listener, "config": FIRST, **options}
    env = cluster.environment("consumer")
    return PushConsumer("G", TOPIC, client=client, env=env, **given)  # type: ignore[arg-type]


def only(spans: Sequence[ReceivedSpan]) -> ReceivedSpan:
    """Return the one span in `spans`."""
    (span,) = spans
    return span


def test_message_has_a_span_for_each_operation_with_links_to_its_send() -> None:
    current: list[int] = []

    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        got = asyncio.Event()

        async def take(message: StoredMessage) -> None:
            await asyncio.sleep(0.01)
            current.append(trace.get_current_span().get_span_context().span_id)
            got.set()

        async with (
            cluster.producer(client=client) as producer,
            consumer_of(cluster, client, take),
        ):
            await producer.send(Message(TOPIC, b"body", tags="eu", keys=("k",)))
            await got.wait()

    receiver = exported(scene)
    send = only(receiver.of("send orders"))
    receive, process = only(receiver.of("receive orders")), only(receiver.of("process orders"))
    settle = only(receiver.of("settle"))
    kinds = [each.kind for each in (send, receive, process, settle)]
    assert kinds == ["PRODUCER", "CLIENT", "CONSUMER", "CLIENT"]
    for span in (receive, process, settle):
        assert span.links == (send.span_id,)
        assert (span.parent_id, span.trace_id != send.trace_id) == (b"", True)
    assert current == [int.from_bytes(process.span_id)]
    assert send.attributes["messaging.message.id"] == process.attributes["messaging.message.id"]
    expected = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": TOPIC,
        "messaging.consumer.group.name": "G",
    }
    assert expected.items() <= process.attributes.items()
    assert send.attributes["messaging.rocketmq.message.keys"] == ("k",)
    assert {"server.address", "server.port"} <= send.attributes.keys() & receive.attributes.keys()


def test_each_attempt_links_to_the_send_and_the_dead_letter_keeps_the_context() -> None:
    properties: list[str] = []

    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        async def fail(message: StoredMessage) -> None:
            raise ValueError("no")

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retries_max=1)
        async with (
            cluster.producer(client=client) as producer,
            consumer_of(cluster, client, fail, config=config),
        ):
            await producer.send(Message(TOPIC, b"body"))
            dead = DEAD_LETTER_PREFIX + "G"
            while not (found := await cluster.records(dead)):
                await asyncio.sleep(1)
        properties.extend(message.properties[TRACE_PARENT] for _, message in found)

    receiver = exported(scene)
    send = only(receiver.of("send orders"))
    attempts = receiver.of("process orders")
    assert [each.links for each in attempts] == [(send.span_id,)] * 2
    assert [each.attributes["error.type"] for each in attempts] == ["ValueError"] * 2
    assert attempts[1].attributes["ternmq.reconsume_times"] == 1
    backs = [
        span
        for span in receiver.of("settle orders")
        if span.attributes.get("ternmq.settle.outcome") == "send_back"
    ]
    assert [each.links for each in backs] == [(send.span_id,)] * 2
    assert [text.split("-")[2] for text in properties] == [send.span_id.hex()]


@pytest.mark.parametrize("resolution", [Resolution.COMMIT, Resolution.ROLLBACK])
def test_end_of_a_transaction_settles_its_half_message(resolution: Resolution) -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        async def execute(message: Message, argument: object) -> Resolution:
            return resolution

        async def check(message: StoredMessage) -> Resolution:
            return resolution

        env = cluster.environment("producer")
        async with TransactionProducer(
            "payers", execute=execute, check=check, client=client, env=env
        ) as producer:
            await producer.send(Message(TOPIC, b"body"))

    receiver = exported(scene)
    send, settle = only(receiver.of("send orders")), only(receiver.of("settle orders"))
    assert send.attributes["messaging.rocketmq.message.type"] == "transaction"
    assert settle.links == (send.span_id,)
    assert settle.attributes["ternmq.settle.outcome"] == resolution.name.lower()


def test_check_of_a_transaction_settles_the_message_of_another_process() -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        async def unknown(message: Message, argument: object) -> Resolution:
            return Resolution.UNKNOWN

        async def check(message: StoredMessage) -> Resolution:
            return Resolution.COMMIT

        env = cluster.environment("producer")
        async with TransactionProducer(
            "payers", execute=unknown, check=check, client=client, env=env
        ) as producer:
            await producer.send(Message(TOPIC, b"body"), check_after_s=1)
            while not await cluster.records(TOPIC):
                await asyncio.sleep(1)

    receiver = exported(scene)
    settle = only(receiver.of("settle orders"))
    assert settle.links == (only(receiver.of("send orders")).span_id,)


def test_reply_is_sent_inside_the_process_span_and_received_inside_the_request() -> None:
    async def scene(
        cluster: SimulatedCluster, exports: ExportedTelemetry, client: ClientConfig
    ) -> None:
        async def answer(message: StoredMessage) -> None:
            await consumer.reply(message, b"reply")

        consumer = consumer_of(cluster, client, answer)
        tracer = exports.tracer_provider.get_tracer("application")
        async with consumer, cluster.producer(client=client) as producer:
            with tracer.start_as_current_span("question"):
                await producer.request(Message(TOPIC, b"body"), timeout_s=10)

    receiver = exported(scene)
    question, request = only(receiver.of("question")), only(receiver.of("send orders"))
    process = only(receiver.of("process orders"))
    (reply,) = [span for span in receiver.spans if span.name.startswith("send Default")]
    (received,) = [span for span in receiver.spans if span.name.startswith("receive Default")]
    assert (request.parent_id, process.links) == (question.span_id, (request.span_id,))
    assert (reply.parent_id, reply.kind) == (process.span_id, "PRODUCER")
    assert (received.parent_id, received.links) == (question.span_id, (reply.span_id,))


def test_delayed_message_keeps_its_context() -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        got: list[StoredMessage] = []
        done = asyncio.Event()

        async def take(message: StoredMessage) -> None:
            got.append(message)
            if len(got) == 2:
                done.set()

        async with (
            cluster.producer(client=client) as producer,
            consumer_of(cluster, client, take),
        ):
            await producer.send(Message(TOPIC, b"level", delay_level=2))
            await producer.send(Message(TOPIC, b"timed", deliver_after_ms=3_000))
            await done.wait()

    receiver = exported(scene)
    sent = {span.span_id for span in receiver.of("send orders")}
    assert {link for span in receiver.of("process orders") for link in span.links} == sent
    assert len(sent) == 2


@pytest.mark.parametrize("verb", ["send_many", "send_batch", "send_columns"])
def test_call_with_many_messages_has_a_span_that_links_to_the_creation_of_each(verb: str) -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        got: list[int] = []
        done = asyncio.Event()

        async def take(messages: Sequence[StoredMessage]) -> ConsumeStatus:
            got.append(len(messages))
            if sum(got) == 3:
                done.set()
            return ConsumeStatus.SUCCESS

        bodies = [b"0", b"1", b"2"]
        async with cluster.producer(client=client) as producer:
            if verb == "send_columns":
                await producer.send_columns(TOPIC, bodies, properties={"own": "1"})
            else:
                await getattr(producer, verb)([Message(TOPIC, body) for body in bodies])
            async with consumer_of(cluster, client, None, batch_listener=take):
                await done.wait()
        assert all(message.properties[TRACE_PARENT] for _, message in await cluster.records(TOPIC))

    receiver = exported(scene)
    creations = receiver.of("create orders")
    send = only(receiver.of("send orders"))
    assert [span.kind for span in creations] == ["PRODUCER"] * 3
    assert all("messaging.message.id" in span.attributes for span in creations)
    assert (send.kind, send.attributes["messaging.batch.message_count"]) == ("CLIENT", 3)
    ids = {span.span_id for span in creations}
    assert set(send.links) == ids
    assert {link for span in receiver.of("process orders") for link in span.links} == ids


def test_spans_of_cancelled_columns_end() -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        async with cluster.producer(client=client) as producer:
            await producer.send_columns(TOPIC, [b"0"])  # the route is known
            sending = asyncio.create_task(producer.send_columns(TOPIC, [b"1", b"2"]))
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

    receiver = exported(scene)
    assert len(receiver.of("create orders")) == 3
    assert len(receiver.of("send orders")) == 2


def test_unsampled_messages_have_no_property_and_no_span() -> None:
    async def scene(
        cluster: SimulatedCluster, exports: ExportedTelemetry, client: ClientConfig
    ) -> None:
        tracer = exports.tracer_provider.get_tracer("application")
        async with cluster.producer(client=client) as producer:
            await producer.send(Message(TOPIC, b"body"))
            await producer.send_many([Message(TOPIC, b"body")] * 3)
            await (await producer.enqueue(Message(TOPIC, b"body")))
            with tracer.start_as_current_span("parent"):
                await producer.send(Message(TOPIC, b"followed"))
        found = [message for _, message in await cluster.records(TOPIC)]
        traced = [message.body for message in found if TRACE_PARENT in message.properties]
        assert (len(found), traced) == (6, [b"followed"])

    receiver = exported(scene, trace_ratio=0)
    parent, send = only(receiver.of("parent")), only(receiver.of("send orders"))
    assert (len(receiver.spans), send.parent_id) == (2, parent.span_id)


def test_listener_of_unsampled_messages_does_not_run_in_the_span_of_its_consumers_opening() -> None:
    seen: list[bool] = []

    async def scene(
        cluster: SimulatedCluster, exports: ExportedTelemetry, client: ClientConfig
    ) -> None:
        got = asyncio.Event()

        async def take(message: StoredMessage) -> None:
            seen.append(trace.get_current_span().is_recording())
            got.set()

        tracer = exports.tracer_provider.get_tracer("application")
        async with cluster.producer(client=client) as producer:
            await producer.send(Message(TOPIC, b"body"))
        with tracer.start_as_current_span("opening"):
            async with consumer_of(cluster, client, take):
                await got.wait()

    exported(scene, trace_ratio=0)
    assert seen == [False]


def test_context_of_an_application_is_kept_and_linked() -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        async with cluster.producer(client=client) as producer:
            await producer.send(Message(TOPIC, b"body", properties={TRACE_PARENT: own}))
        ((_queue, message),) = await cluster.records(TOPIC)
        assert message.properties[TRACE_PARENT] == own

    send = only(exported(scene).of("send orders"))
    assert send.links == (bytes.fromhex("b7ad6b7169203331"),)


def test_polled_messages_are_received_and_settled_by_the_commit() -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        async with cluster.producer(client=client) as producer:
            await producer.send(Message(TOPIC, b"body"))
        env = cluster.environment("consumer")
        async with PullConsumer("G", client=client, env=env) as consumer:
            consumer.assign(await consumer.queues(TOPIC))
            while not await consumer.poll():
                pass
            assert await consumer.commit()

    receiver = exported(scene)
    send = only(receiver.of("send orders"))
    assert only(receiver.of("receive orders")).links == (send.span_id,)
    assert only(receiver.of("settle")).links == (send.span_id,)


def test_staged_messages_carry_the_context_of_their_creation() -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        env = cluster.environment("producer")
        async with StagingProducer("sink", client=client, env=env) as producer:
            staged = await producer.stage([Message(TOPIC, b"1")], staged_for="query/1")
            await producer.end(staged, Resolution.COMMIT)
            staged = await producer.stage_columns(TOPIC, [b"2"], staged_for="query/2")
            await producer.end(staged, Resolution.COMMIT)
        found = [message for _, message in await cluster.records(TOPIC)]
        spans.extend(message.properties[TRACE_PARENT].split("-")[2] for message in found)

    spans: list[str] = []
    created = [span.span_id.hex() for span in exported(scene).of("create orders")]
    assert created == spans


def test_failed_send_is_an_error_of_its_span() -> None:
    async def scene(cluster: SimulatedCluster, _: ExportedTelemetry, client: ClientConfig) -> None:
        async with cluster.producer(client=client) as producer:
            await producer.send(Message(TOPIC, b"body"))
            cluster.kill("a")
            with pytest.raises(TernError):
                await producer.send(Message(TOPIC, b"body"), timeout_s=1)

    first, second = exported(scene).of("send orders")
    assert (first.is_error, second.is_error) == (False, True)
    assert "error.type" in second.attributes


class BrokenProcessor(SpanProcessor):
    """Processor of an application that fails for each span."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        raise ValueError("broken")

    def on_end(self, span: ReadableSpan) -> None:
        raise ValueError("broken")


def test_failing_telemetry_loses_no_message() -> None:
    got: list[bytes] = []

    async def scene(cluster: SimulatedCluster, exports: ExportedTelemetry, _: ClientConfig) -> None:
        done = asyncio.Event()

        async def take(message: StoredMessage) -> None:
            got.append(message.body)
            if len(got) == 3:
                done.set()

        whole = ClientConfig(nameservers=(NAMESERVER,), telemetry=exports.telemetry)
        provider = TracerProvider()
        provider.add_span_processor(BrokenProcessor())
        broken = ClientConfig(nameservers=(NAMESERVER,), telemetry=Telemetry(provider))
        async with (
            cluster.producer(client=broken) as producer,
            cluster.producer("whole", client=whole) as other,
            consumer_of(cluster, broken, take),
        ):
            await producer.send(Message(TOPIC, b"1"))
            await producer.send_many([Message(TOPIC, b"2")])
            await other.send(Message(TOPIC, b"3"))
            await done.wait()

    exported(scene)
    assert sorted(got) == [b"1", b"2", b"3"]
