"""Receiver of OpenTelemetry's protocol: the spans and metrics that a process under test exports."""

from collections.abc import Generator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2,
    metrics_service_pb2_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ternmq_client.telemetry.telemetry import Telemetry


@dataclass(frozen=True)
class ReceivedSpan:
    """Span as the receiver got it."""

    name: str
    kind: str
    span_id: bytes
    trace_id: bytes
    parent_id: bytes
    attributes: Mapping[str, Any]
    links: tuple[bytes, ...]
    """Ids of the linked spans."""

    is_error: bool


@dataclass
class OtlpReceiver(
    trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer
):
    """Both services of a receiver, and what they received."""

    spans: list[ReceivedSpan] = field(default_factory=list[ReceivedSpan])
    metrics: list[tuple[str, Mapping[str, Any], float, int]] = field(
        default_factory=list[tuple[str, Mapping[str, Any], float, int]]
    )
    """Name, attributes, value or sum, and count of each point of the last export."""

    endpoint: str = ""

    def Export(self, request: Any, context: Any) -> Any:
        """Take an export of either kind."""
        if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self.spans += map(_span, scope.spans)
            return trace_service_pb2.ExportTraceServiceResponse()
        self.metrics.clear()
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.sum.data_points:
                        given = _attributes(point.attributes)
                        self.metrics.append((metric.name, given, point.as_int, 1))
                    for bucket in metric.histogram.data_points:
                        given = _attributes(bucket.attributes)
                        self.metrics.append((metric.name, given, bucket.sum, bucket.count))
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def of(self, name: str) -> list[ReceivedSpan]:
        """Return the spans with this name, in the order of their ends."""
        return [span for span in self.spans if span.name == name]

    def total(self, name: str, **attributes: object) -> int:
        """Return the sum of a counter, or the count of a histogram, over equal attributes.

        Underscores in the names of attributes stand for dots.
        """
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        return sum(
            round(value) if count == 1 and not name.endswith(".duration") else count
            for found, given, value, count in self.metrics
            if found == name and wanted.items() <= given.items()
        )


@dataclass
class ExportedTelemetry:
    """Telemetry that exports to a receiver when it is flushed."""

    receiver: OtlpReceiver
    telemetry: Telemetry
    tracer_provider: TracerProvider
    meter_provider: MeterProvider

    def flush(self) -> OtlpReceiver:
        """Export everything and return the receiver."""
        self.tracer_provider.force_flush()
        self.meter_provider.force_flush()
        return self.receiver


@contextmanager
def otlp_receiver() -> Generator[OtlpReceiver]:
    """Serve a receiver on a free port."""
    receiver = OtlpReceiver()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


@contextmanager
def exported_telemetry(trace_ratio: float = 1.0) -> Generator[ExportedTelemetry]:
    """Provide a telemetry whose spans and metrics go to a receiver over gRPC."""
    with otlp_receiver() as receiver:
        spans = TracerProvider()
        exporter = OTLPSpanExporter(endpoint=receiver.endpoint, insecure=True)
        spans.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=receiver.endpoint, insecure=True),
            export_interval_millis=3_600_000,
        )
        meters = MeterProvider([reader])
        try:
            yield ExportedTelemetry(receiver, Telemetry(spans, meters, trace_ratio), spans, meters)
        finally:
            spans.shutdown()
            meters.shutdown()


def _span(span: Span) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span_id=span.span_id,
        trace_id=span.trace_id,
        parent_id=span.parent_span_id,
        attributes=_attributes(span.attributes),
        links=tuple(link.span_id for link in span.links),
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(map(_value, value.array_value.values))
    return getattr(value, kind)
