"""Telemetry of one task or commit of the sink, by the variables OTEL_* of its process.

OpenTelemetry is imported in a task whose options demand it, and in no other.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ternmq_model.errors import ConfigError, MissingPackage
from ternmq_model.version import install_command

if TYPE_CHECKING:
    from ternmq_client.telemetry.telemetry import Telemetry

_SERVICE: Final = "ternmq-spark"
_FLUSH_MS: Final = 10_000
"""Time limit of the flush at the end, ms."""

_RATIO_SAMPLERS: Final = frozenset({"traceidratio", "parentbased_traceidratio"})


def trace_ratio(variables: Mapping[str, str]) -> float:
    """Return the part of the rows that are traced, by the variables OTEL_TRACES_SAMPLER*. Pure.

    The sampler by a ratio is applied to rows, ahead of their spans, and not once more to the spans.

    Raises:
        ConfigError: The ratio is no number.
    """
    sampler = variables.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if sampler.endswith("always_off"):
        return 0.0
    if sampler not in _RATIO_SAMPLERS:
        return 1.0
    text = variables.get("OTEL_TRACES_SAMPLER_ARG", "1")
    try:
        return float(text)
    except ValueError:
        raise ConfigError("OTEL_TRACES_SAMPLER_ARG", text, "must be 0 to 1") from None


@contextmanager
def task_telemetry(is_wanted: bool, instance: str) -> "Generator[Telemetry | None]":
    """Provide a telemetry, and export everything at the end of the block, also after an error.

    Spans and metrics go to OTEL_EXPORTER_OTLP_ENDPOINT over gRPC. An exporter that fails is logged
    and changes nothing else.

    Args:
        is_wanted: False = the block gets None.
        instance: Value of `service.instance.id`, one for each block.

    Raises:
        MissingPackage: OpenTelemetry is not installed, the extra `otel`.
        ConfigError: The ratio of the variables is out of its range.
    """
    if not is_wanted:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import DEFAULT_ON
    except ImportError:
        needed = "telemetry='otel' needs OpenTelemetry, which is not installed"
        raise MissingPackage(f"{needed}: {install_command('otel')}") from None
    from ternmq_client.telemetry.telemetry import Telemetry

    ratio = trace_ratio(os.environ)
    attributes = {"service.instance.id": instance}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes["service.name"] = _SERVICE
    resource = Resource.create(attributes)
    spans = TracerProvider(sampler=DEFAULT_ON, resource=resource, shutdown_on_exit=False)
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    meters = MeterProvider([reader], resource, shutdown_on_exit=False)
    try:
        yield Telemetry(spans, meters, ratio)
    finally:
        spans.force_flush(_FLUSH_MS)
        spans.shutdown()
        meters.shutdown(_FLUSH_MS)
