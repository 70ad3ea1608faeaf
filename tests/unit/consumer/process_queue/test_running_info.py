from collections.abc import Callable

from ternmq_consumer.process_queue.running_info import (
    ProcessQueueInfo,
    RunningInfoReporter,
    running_info,
)
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import groups_pb2 as groups


class Line:
    """A Session's two directions."""

    def __init__(self) -> None:
        self.handlers: list[Callable[[groups.SessionReply, str], None]] = []
        self.said: list[tuple[str, groups.RunningState]] = []

    def on_command(
        self, name: str, handler: Callable[[groups.SessionReply, str], None]
    ) -> Callable[[], None]:
        assert name == "report_state"
        self.handlers.append(handler)
        return lambda: self.handlers.remove(handler)

    def say(self, broker_name: str, request: groups.SessionRequest) -> bool:
        self.said.append((broker_name, request.running_state))
        return True

    def ask(self, group: str, number: int) -> None:
        question = groups.ReportState(request_id=number, group=group)
        for handler in self.handlers:
            handler(groups.SessionReply(report_state=question), "broker-a")


QUEUES = [
    ProcessQueueInfo(MessageQueue("T", "b", 1), 3, 9, 4, 400, True, 11, 12),
    ProcessQueueInfo(MessageQueue("T", "b", 0), 5, 5, 0, 0),
    ProcessQueueInfo(MessageQueue("S", "b", 2), 0, 1, 1, 10),
]


def test_queues_are_reported_in_order_with_everything_known() -> None:
    state = running_info("G", QUEUES, {"workers": 4})
    assert [(one.topic, one.queue_id) for one in state.queues] == [("S", 2), ("T", 0), ("T", 1)]
    last = state.queues[-1]
    assert (last.commit_offset, last.read_offset, last.messages, last.bytes) == (3, 9, 4, 400)
    assert (last.locked, last.pulled_at_ms, last.consumed_at_ms) == (True, 11, 12)
    assert dict(state.facts) == {"workers": "4"}


def test_question_is_answered_only_by_its_living_group() -> None:
    line = Line()
    with RunningInfoReporter(line, "G", queues=lambda: QUEUES, facts=dict):
        line.ask("G", 7)
        line.ask("H", 8)
    line.ask("G", 9)
    [(broker, state)] = line.said
    assert (broker, state.request_id, state.group, len(state.queues)) == ("broker-a", 7, "G", 3)
