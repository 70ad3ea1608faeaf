"""Telemetry by OpenTelemetry, and its absence."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from ternmq_client.config import ClientConfig
from ternmq_client.telemetry.operation_key import OperationKey
from ternmq_client.telemetry.telemetry import TRACE_PARENT, Telemetry
from ternmq_model.errors import ConfigError, MissingPackage

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_IMPORTED = """
import sys, ternmq
ternmq.Producer("group", client=ternmq.ClientConfig())
ternmq.PushConsumer("group", "topic", listener=print)
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_clients_without_telemetry_import_nothing_of_opentelemetry() -> None:
    found = subprocess.run(
        [sys.executable, "-c", NOT_IMPORTED], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingPackage, match=r"\[otel\]"):
        Telemetry()


@pytest.mark.parametrize("ratio", [-0.1, 1.1, "half"])
def test_illegal_ratio_is_refused(ratio: Any) -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.trace_ratio"):
        Telemetry(TracerProvider(), trace_ratio=ratio)


def test_setting_takes_a_telemetry_alone() -> None:
    wrong: Any = TracerProvider()
    with pytest.raises(ConfigError, match=r"client\.telemetry"):
        ClientConfig(telemetry=wrong)


def test_telemetry_without_providers_uses_the_global_ones() -> None:
    span = Telemetry().start(OperationKey("send", topic="orders"), "PRODUCER", {})
    assert not span.is_recording()  # no provider is installed


def test_carrier_is_empty_for_a_span_that_its_provider_does_not_record() -> None:
    for provider, is_traced in ((TracerProvider(), True), (TracerProvider(ALWAYS_OFF), False)):
        telemetry = Telemetry(provider)
        span = telemetry.start(OperationKey("send"), "PRODUCER", {})
        carrier = telemetry.carrier(span)
        assert (TRACE_PARENT in carrier) == is_traced
        assert len(telemetry.links([carrier])) == is_traced


def test_links_pass_over_unsampled_and_unreadable_contexts() -> None:
    texts = ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "nonsense", ""]
    assert not Telemetry().links({TRACE_PARENT: text} for text in texts)


@pytest.mark.parametrize(
    ("text", "is_linked"),
    [
        (PARENT, True),
        ("cc" + PARENT[2:] + "-later", True),
        (PARENT + "-later", False),
        ("ff" + PARENT[2:], False),
        (PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), False),
        (PARENT.replace("b7ad6b7169203331", "0" * 16), False),
        (PARENT.upper(), False),
        ("g0" + PARENT[2:], False),
        (PARENT + "\n", False),
        ("x" * 30_000, False),
    ],
)
def test_contexts_are_read_by_their_rules_without_a_word(
    text: str, is_linked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    carrier = {TRACE_PARENT: text, "tracestate": "=,;\n" * 1000}
    links = Telemetry().links([carrier])
    assert [link.context.span_id for link in links] == [0xB7AD6B7169203331] * is_linked
    assert not caplog.records


def test_trace_state_of_the_parent_travels_beside_the_context() -> None:
    telemetry = Telemetry(TracerProvider())
    state = trace.TraceState([("vendor", "1")])
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    parent = trace.NonRecordingSpan(trace.SpanContext(1, 2, True, flags, state))
    with trace.use_span(parent):
        span = telemetry.start(OperationKey("send"), "PRODUCER", {})
    carrier = telemetry.carrier(span)
    assert carrier["tracestate"] == "vendor=1"
    assert carrier[TRACE_PARENT].startswith(f"00-{1:032x}-")


def test_durations_are_no_examples_of_the_span_that_passes_them_on() -> None:
    reader = InMemoryMetricReader()
    telemetry = Telemetry(TracerProvider(), MeterProvider([reader]))
    span = telemetry.start(OperationKey("send"), "PRODUCER", {})
    with trace.use_span(span):
        for _ in range(100):
            telemetry.record_operation(0.1, {"a": 1})
    data: Any = reader.get_metrics_data()
    (point,) = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert point.count == 100
    assert not any(example.span_id for example in point.exemplars)


def test_sums_never_fall_while_clients_come_and_go() -> None:
    reader = InMemoryMetricReader()
    telemetry = Telemetry(TracerProvider(), MeterProvider([reader]))
    seen: list[float] = []

    def look() -> None:
        data: Any = reader.get_metrics_data()
        metrics: list[Any] = data.resource_metrics[0].scope_metrics[0].metrics if data else []
        sent = [each for each in metrics if each.name == "messaging.client.sent.messages"]
        points: list[float] = [point.value for each in sent for point in each.data.data_points]
        seen.append(sum(points))

    def run() -> int:
        for _ in range(300):
            counts = telemetry.begin_counts()
            key = OperationKey("send")
            counts.sent[key] = counts.sent.get(key, 0) + 1
            telemetry.end_counts(counts)
        return 300

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(run) for _ in range(3)]
        while not all(each.done() for each in running):
            look()
    look()
    assert seen == sorted(seen)
    assert seen[-1] == sum(each.result() for each in running)
