"""Telemetry by OpenTelemetry, and its absence."""

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from ternmq_client.config import ClientConfig
from ternmq_client.telemetry.operation_key import OperationKey
from ternmq_client.telemetry.telemetry import TRACE_PARENT, Telemetry
from ternmq_model.errors import ConfigError, MissingPackage

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


def test_trace_state_travels_beside_the_parent() -> None:
    telemetry = Telemetry(TracerProvider())
    own = {
        TRACE_PARENT: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
    }
    (link,) = telemetry.links([own])
    assert link.context.trace_state.to_header() == "vendor=1"
