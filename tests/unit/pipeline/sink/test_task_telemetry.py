"""Telemetry of a task, by the variables of its process."""

import sys

import pytest

from ternmq_client.telemetry.operation_key import OperationKey
from ternmq_model.errors import ConfigError, MissingPackage
from ternmq_pipeline.sink.task_telemetry import task_telemetry, trace_ratio
from tests.support.otlp_receiver import otlp_receiver

RATIO = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 1.0),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, 0.0),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, 1.0),
        (RATIO, 0.25),
    ],
)
def test_ratio_is_that_of_the_sampler(variables: dict[str, str], expected: float) -> None:
    assert trace_ratio(variables) == expected


def test_ratio_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="OTEL_TRACES_SAMPLER_ARG"):
        trace_ratio(RATIO | {"OTEL_TRACES_SAMPLER_ARG": "some"})


def test_task_without_telemetry_has_none() -> None:
    with task_telemetry(False, "task") as telemetry:
        assert telemetry is None


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingPackage, match=r"\[otel\]"), task_telemetry(True, "task"):
        pass


def fail_in_a_task() -> None:
    with task_telemetry(True, "task") as telemetry:
        assert telemetry is not None
        telemetry.start(OperationKey("create", topic="t"), "PRODUCER", {}).end()
        telemetry.begin_counts().sent[OperationKey("send", topic="t")] = 3
        raise ValueError("row")


def test_task_exports_everything_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        with pytest.raises(ValueError, match="row"):
            fail_in_a_task()
        assert [span.name for span in receiver.spans] == ["create t"]
        assert receiver.total("messaging.client.sent.messages") == 3
