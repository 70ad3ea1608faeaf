"""Retries at another broker of messages that are stored, but not safely enough."""

from collections.abc import Sequence

from ternmq_client.routes.route_cache import RouteCache
from ternmq_model.errors import TernError
from ternmq_model.message import SendResult
from ternmq_model.response_code import STORED_CODES, ResponseCode
from ternmq_producer.batch.batcher import ProducerBatch
from ternmq_producer.batch.pending_send import PendingSend
from ternmq_producer.batch.result_sinks import ResultSink
from ternmq_producer.config import ProducerConfig


class FallbackSink:
    """Sink with a first result, which becomes the answer unless a retry brings another.

    Attributes:
        is_held: True while the next result is stored instead of passed on.
        result: Result stored last.
    """

    def __init__(self, sink: ResultSink) -> None:
        self._sink = sink
        self.is_held = True
        self.result: SendResult | None = None

    def done(self) -> bool:
        """Return whether no caller waits any more."""
        return self._sink.done()

    def set_result(self, result: SendResult, /) -> None:
        """Store the result, or pass it on."""
        if self.is_held:
            self.result = result
        else:
            self._sink.set_result(result)

    def set_exception(self, error: TernError, /) -> None:
        """Answer with the stored result; with `error` when there is none."""
        if self.result is None:
            self._sink.set_exception(error)
        else:
            self._sink.set_result(self.result)


def hold_back(
    batch: ProducerBatch, code: int, config: ProducerConfig, routes: RouteCache, broker_name: str
) -> Sequence[PendingSend]:
    """Hold back the results of messages to retry at another broker; return those messages.

    Ordered messages, those of `send_many` and `send_batch`, and those that must not be stored twice
    have no such retry. `code` is that of the batch's answer.
    """
    if not (config.retry_another_broker_when_not_ok and config.duplicates_allowed):
        return ()
    if code not in STORED_CODES or code == ResponseCode.SUCCESS:
        return ()

    def is_taken_elsewhere(topic: str) -> bool:
        route = routes.cached(topic)
        queues = () if route is None else route.write_queues()
        return any(queue.broker_name != broker_name for queue in queues)

    batch.separate()
    topics = {pending.topic.decode() for pending in batch.singles}
    topics = {topic for topic in topics if is_taken_elsewhere(topic)}
    held: list[PendingSend] = []
    for pending in batch.singles:
        is_last = pending.attempts >= config.attempts_max or pending.topic.decode() not in topics
        if is_last or pending.is_ordered or pending.sink.done():
            continue
        if isinstance(pending.sink, FallbackSink):
            pending.sink.is_held = True
        else:
            pending.sink = FallbackSink(pending.sink)
        held.append(pending)
    return held


def let_go(held: Sequence[PendingSend]) -> Sequence[PendingSend]:
    """Pass later results on; return the messages whose results were held back."""
    stored: list[PendingSend] = []
    for pending in held:
        sink = pending.sink
        if isinstance(sink, FallbackSink):
            sink.is_held = False
            if sink.result is not None and not sink.done():
                stored.append(pending)
    return stored
