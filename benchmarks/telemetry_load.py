"""Telemetry of a measured client: its exports are encoded and dropped."""

from collections.abc import Sequence
from typing import Any, Literal

from ternmq import Telemetry

TRACED: float = 0.01
"""Part of the messages that are traced."""

EXPORT_S: float = 5.0


def discarded(kind: Literal["metrics", "traces"]) -> Telemetry:
    """Return a telemetry with metrics, or with traces of some messages.

    OpenTelemetry's SDK collects everything and encodes it for OTLP; only the receiver is missing.
    """
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExporter,
        MetricExportResult,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.trace import NoOpTracerProvider

    class Spans(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            encode_spans(spans).SerializeToString()
            return SpanExportResult.SUCCESS

    class Metrics(MetricExporter):
        def export(
            self, metrics_data: Any, timeout_millis: float = 0, **kwargs: Any
        ) -> MetricExportResult:
            encode_metrics(metrics_data).SerializeToString()
            return MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
            pass

    if kind == "metrics":
        reader = PeriodicExportingMetricReader(Metrics(), EXPORT_S * 1000)
        return Telemetry(NoOpTracerProvider(), MeterProvider([reader]), trace_ratio=0)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Spans()))
    return Telemetry(provider, NoOpMeterProvider(), trace_ratio=TRACED)
