"""Telemetry of clients by OpenTelemetry, which is imported when a `Telemetry` is made."""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ternmq_client.telemetry.operation_key import (
    Attributes,
    AttributeValue,
    OperationKey,
    attributes_of,
    span_name,
)
from ternmq_client.telemetry.trace_sampler import TraceSampler
from ternmq_model.arguments import is_kind
from ternmq_model.errors import ConfigError, MissingPackage
from ternmq_model.properties import encode_name
from ternmq_model.version import __version__, install_command

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.trace import Link, Span, TracerProvider

TRACE_PARENT: Final = "traceparent"
"""Property with the W3C context of a message's creation; `tracestate` stands beside it."""

TRACE_STATE: Final = "tracestate"

TRACE_PARENT_NAME: Final = encode_name(TRACE_PARENT)
"""Name of the property in a record, for a search without decoding."""

_SAMPLED_CONTEXT: Final = re.compile(
    "(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f][13579bdf])(-.*)?"
)
"""Context with the flag of sampled messages. Versions after 00 may have more behind it."""

AnyAttributes: TypeAlias = Mapping[str, AttributeValue]

Counts: TypeAlias = dict[OperationKey, int]
"""Numbers of messages by operation."""

_DURATIONS_MAX: Final = 64
"""Number of durations that wait at most: records of so many pause a loop for less than 1 ms."""

_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Bounds of durations. Source: OpenTelemetry's semantic conventions."""


class MessageCounts:
    """Numbers of sent and consumed messages of one client, on whose loop they are counted."""

    def __init__(self) -> None:
        self.sent: Counts = {}
        self.consumed: Counts = {}


class Telemetry:
    """Metrics and traces of clients, by OpenTelemetry's semantic conventions for messaging.

    Any number of clients may share one object; one is enough for a process. The providers are the
    application's: their exporters decide where metrics and spans go.

    Args:
        tracer_provider: Provider of the spans. None = OpenTelemetry's global one.
        meter_provider: Provider of the metrics. None = OpenTelemetry's global one.
        trace_ratio: Part of the messages that are traced, 0 to 1. A message that is sent inside a
            recording span is always traced.

    Raises:
        MissingPackage: OpenTelemetry is not installed, the extra `otel`.
        ConfigError: `trace_ratio` is out of its range.
    """

    def __init__(
        self,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        trace_ratio: float = 1.0,
    ) -> None:
        try:
            from opentelemetry import context, metrics, trace
        except ImportError:
            raise MissingPackage(
                f"Telemetry needs OpenTelemetry, which is not installed: {install_command('otel')}"
            ) from None
        if not is_kind(trace_ratio, int, float) or not 0 <= trace_ratio <= 1:
            raise ConfigError("telemetry.trace_ratio", trace_ratio, "must be 0 to 1")
        self.trace_ratio = trace_ratio
        self._context = context
        self._no_context = context.Context()
        self._outside = trace.set_span_in_context(trace.INVALID_SPAN, self._no_context)
        self._get_context = context.get_current
        self._trace = trace
        self._observation: type[Observation] = metrics.Observation
        self._tracer = trace.get_tracer("ternmq", __version__, tracer_provider)
        self._counts: list[MessageCounts] = []
        self._free_counts: deque[MessageCounts] = deque()
        meter = metrics.get_meter("ternmq", __version__, meter_provider)
        self._durations: deque[tuple[Histogram, float, AnyAttributes]] = deque()
        self._operation_duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of operations between a client and a broker.",
            explicit_bucket_boundaries_advisory=_BOUNDS_S,
        )
        self._process_duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of listener calls.",
            explicit_bucket_boundaries_advisory=_BOUNDS_S,
        )
        meter.create_observable_counter(
            "messaging.client.sent.messages",
            [self._observe_sent],
            "{message}",
            "Messages that producers sent, or failed to send.",
        )
        meter.create_observable_counter(
            "messaging.client.consumed.messages",
            [self._observe_consumed],
            "{message}",
            "Messages that consumers delivered to the application.",
        )

    def record_operation(self, took_s: float, attributes: AnyAttributes) -> None:
        """Record the duration of a request. Any thread may call it."""
        self._record(self._operation_duration, took_s, attributes)

    def record_process(self, took_s: float, attributes: AnyAttributes) -> None:
        """Record the duration of a listener call. Any thread may call it."""
        self._record(self._process_duration, took_s, attributes)

    def _record(self, histogram: "Histogram", took_s: float, attributes: AnyAttributes) -> None:
        # A record among other work takes 30 us, and 7 us among others of its kind. The span that is
        # current when they are passed on is none of theirs: they have no exemplars.
        self._durations.append((histogram, took_s, attributes))
        if len(self._durations) >= _DURATIONS_MAX:
            self._flush()

    def _flush(self) -> None:
        """Pass the durations to OpenTelemetry. Threads may do so at the same time."""
        with suppress(IndexError):
            while True:
                histogram, took_s, attributes = self._durations.popleft()
                histogram.record(took_s, attributes, self._outside)

    def sampler(self, random: Random) -> TraceSampler:
        """Return the sampler of one client."""
        return TraceSampler(self.trace_ratio, random)

    def begin_counts(self) -> MessageCounts:
        """Return counts for a new client: those of a closed one, which it continues."""
        # So the sums need no lock, never fall, and do not grow with the clients of a process.
        with suppress(IndexError):
            return self._free_counts.pop()
        counts = MessageCounts()
        self._counts.append(counts)
        return counts

    def end_counts(self, counts: MessageCounts) -> None:
        """Keep the final counts of a client."""
        self._free_counts.append(counts)
        self._flush()

    def is_recording(self) -> bool:
        """Return whether the caller runs inside a recording span."""
        # Most callers have an empty context: its look-up costs a third of that of a span.
        context = self._get_context()
        return bool(context) and self._trace.get_current_span(context).is_recording()

    def start(
        self,
        key: OperationKey,
        kind: Literal["PRODUCER", "CLIENT", "CONSUMER"],
        attributes: Attributes,
        links: Sequence["Link"] = (),
        *,
        is_root: bool = False,
    ) -> "Span":
        """Start the span of an operation.

        Args:
            key: Operation.
            kind: Kind of the span.
            attributes: Attributes beside those of the key.
            links: Contexts of creation of the operation's messages.
            is_root: True = the span begins a trace. False = it is a child of the current span.
        """
        return self._tracer.start_span(
            span_name(key),
            self._no_context if is_root else None,
            self._trace.SpanKind[kind],
            {**attributes_of(key), **attributes},
            links,
        )

    def fail(self, span: "Span", kind: str, text: str = "") -> None:
        """Mark the operation of a span as failed."""
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.StatusCode.ERROR, text or kind)

    def carrier(self, span: "Span | None" = None) -> dict[str, str]:
        """Return the properties of a message that is created in `span`; none if it is not recorded.

        Args:
            span: Span of the creation; None = the current one.
        """
        span = self._trace.get_current_span() if span is None else span
        created = span.get_span_context()
        if not span.is_recording() or not created.is_valid:
            return {}
        ids = f"{created.trace_id:032x}-{created.span_id:016x}"
        parent = {TRACE_PARENT: f"00-{ids}-{created.trace_flags:02x}"}
        state = created.trace_state.to_header() if created.trace_state else ""
        return {**parent, TRACE_STATE: state} if state else parent

    def links(self, carriers: Iterable[Mapping[str, str]]) -> list["Link"]:
        """Return links to the creations of sampled messages.

        Args:
            carriers: Properties of messages, sampled or not.
        """
        found: list[Link] = []
        for carrier in carriers:
            # Not by OpenTelemetry's propagator, which logs a warning for each strange property.
            match = _SAMPLED_CONTEXT.fullmatch(carrier.get(TRACE_PARENT, ""))
            if match is None or (match[1] == "00" and match[5]):
                continue
            flags = self._trace.TraceFlags(int(match[4], 16))
            created = self._trace.SpanContext(int(match[2], 16), int(match[3], 16), True, flags)
            if created.is_valid:
                found.append(self._trace.Link(created))
        return found

    def current_has(self, links: Sequence["Link"]) -> bool:
        """Return whether the current span has one of `links`."""
        current: Sequence[Link] = getattr(self._trace.get_current_span(), "links", ())
        ids = {each.context.span_id for each in links}
        return any(each.context.span_id in ids for each in current)

    def enter(self, span: "Span | None") -> "Token[Context]":
        """Make `span` the current one, in a context with nothing else; None = no span.

        Returns:
            Token for `leave`, which the same thread or task calls.
        """
        context = self._no_context
        if span is not None:
            context = self._trace.set_span_in_context(span, context)
        return self._context.attach(context)

    def leave(self, token: "Token[Context]") -> None:
        """Return to the context before `enter`."""
        self._context.detach(token)

    def _observe_sent(self, _options: "CallbackOptions") -> Iterable["Observation"]:
        return self._observe([each.sent for each in self._counts])

    def _observe_consumed(self, _options: "CallbackOptions") -> Iterable["Observation"]:
        return self._observe([each.consumed for each in self._counts])

    def _observe(self, every: Sequence[Counts]) -> list["Observation"]:
        """Return the sums of counts. An exporter's thread calls it; `dict` copies are atomic."""
        self._flush()
        total: Counts = {}
        for counts in every:
            _add(total, counts.copy())
        return [self._observation(count, attributes_of(key)) for key, count in total.items()]


def _add(total: Counts, counts: Counts) -> None:
    for key, count in counts.items():
        total[key] = total.get(key, 0) + count
