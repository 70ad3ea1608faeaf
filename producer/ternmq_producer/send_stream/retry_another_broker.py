"""Retries at another broker of messages that are stored, but not as safely as asked."""

from collections.abc import Sequence

from ternmq_client.routes.route_cache import RouteCache
from ternmq_model.message import SendResult
from ternmq_model.response_code import STORED_CODES, ResponseCode
from ternmq_producer.batch.batcher import ProducerBatch
from ternmq_producer.batch.pending_send import PendingSend, ResultSink
from ternmq_producer.config import ProducerConfig


class FallbackSink:
    """A sink in front of a sender that has a result already, which counts unless another comes.

    Attributes:
        is_held: The next result is kept, not told.
        result: What was kept last.
    """

    def __init__(self, sink: ResultSink) -> None:
        self._sink = sink
        self.is_held = True
        self.result: SendResult | None = None

    def done(self) -> bool:
        """Return whether nobody waits any more."""
        return self._sink.done()

    def set_result(self, result: SendResult, /) -> None:
        """Store the result, or pass it on."""
        if self.is_held:
            self.result = result
        else:
            self._sink.set_result(result)

    def set_exception(self, error: BaseException, /) -> None:
        """Pass the stored result on: the message is stored, whatever became of another try."""
        if self.result is None:
            self._sink.set_exception(error)
        else:
            self._sink.set_result(self.result)


def hold_back(
    batch: ProducerBatch, code: int, config: ProducerConfig, routes: RouteCache, broker_name: str
) -> Sequence[PendingSend]:
    """Hold back results of messages to be tried at another broker; return those messages.

    Nothing is tried a second time that must stay in its queue, that travels with many, or that may
    not be stored twice.

    Args:
        batch: About to be answered.
        code: Of the answer.
        config: The producer's settings.
        routes: Tell whether a topic can be written at another broker.
        broker_name: Whose answer it is.
    """
    if not (config.retry_another_broker_when_not_ok and config.duplicates_allowed):
        return ()
    if code not in STORED_CODES or code == ResponseCode.SUCCESS:
        return ()

    def is_taken_elsewhere(topic: str) -> bool:
        route = routes.cached(topic)
        queues = () if route is None else route.write_queues()
        return any(queue.broker_name != broker_name for queue in queues)

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
    """Pass results on from now on; return the messages whose results were held back."""
    kept: list[PendingSend] = []
    for pending in held:
        sink = pending.sink
        if isinstance(sink, FallbackSink):
            sink.is_held = False
            if sink.result is not None and not sink.done():
                kept.append(pending)
    return kept
