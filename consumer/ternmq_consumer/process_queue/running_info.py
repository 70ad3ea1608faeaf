"""Running info of a consumer, for brokers that request it: its queues and settings.

Source: RocketMQ `ConsumerRunningInfo`, `ClientRemotingProcessor.getConsumerRunningInfo`.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import NamedTuple, Protocol, Self

from ternmq_model.queue import MessageQueue
from ternmq_model.version import __version__
from ternmq_protos.v1 import groups_pb2 as groups


class ProcessQueueInfo(NamedTuple):
    """State of one owned queue."""

    queue: MessageQueue
    commit_offset: int
    """Lowest unfinished offset."""

    read_offset: int
    """Next offset to read."""

    messages: int
    """Number of unfinished messages."""

    record_bytes: int
    """Length of the unfinished records, bytes."""

    is_locked: bool = False
    pulled_at_ms: int = 0
    """Time of the last records, Unix milliseconds; 0 = never."""

    consumed_at_ms: int = 0
    """Time at which the last message was finished, Unix milliseconds; 0 = never."""


class SessionCommands(Protocol):
    """Commands of brokers on a client's Sessions, and its answers: `BrokerSessions`."""

    def on_command(
        self, name: str, handler: Callable[[groups.SessionReply, str], None]
    ) -> Callable[[], None]:
        """Call `handler` with every command of a kind. Return the function that unregisters it."""
        ...

    def say(self, broker_name: str, request: groups.SessionRequest) -> bool:
        """Answer a broker on its Session."""
        ...


class RunningInfoReporter:
    """Reports the running info of one consumer inside `with`. Used on its event loop.

    Args:
        group: Group of the consumer. Requests for other groups are ignored.
        queues: Function that returns the states of the owned queues.
        facts: Function that returns settings and counters, by name.
    """

    def __init__(
        self,
        sessions: SessionCommands,
        group: str,
        *,
        queues: Callable[[], Iterable[ProcessQueueInfo]],
        facts: Callable[[], Mapping[str, object]],
    ) -> None:
        self._sessions = sessions
        self._group = group
        self._queues = queues
        self._facts = facts
        self._end: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        self._end = self._sessions.on_command("report_state", self._on_question)
        return self

    def __exit__(self, *_: object) -> None:
        if self._end is not None:
            self._end()

    def _on_question(self, command: groups.SessionReply, broker_name: str) -> None:
        question = command.report_state
        if question.group == self._group:
            state = running_info(self._group, self._queues(), self._facts())
            state.request_id = question.request_id
            self._sessions.say(broker_name, groups.SessionRequest(running_state=state))


def running_info(
    group: str, queues: Iterable[ProcessQueueInfo], facts: Mapping[str, object]
) -> groups.RunningState:
    """Return the running info without the number of its request. Pure."""
    state = groups.RunningState(
        group=group, facts={name: str(value) for name, value in facts.items()}
    )
    for one in sorted(queues, key=_queue_order):
        state.queues.add(
            topic=one.queue.topic,
            broker_name=one.queue.broker_name,
            queue_id=one.queue.queue_id,
            commit_offset=one.commit_offset,
            read_offset=one.read_offset,
            messages=one.messages,
            bytes=one.record_bytes,
            locked=one.is_locked,
            pulled_at_ms=one.pulled_at_ms,
            consumed_at_ms=one.consumed_at_ms,
        )
    return state


def facts_of(*sources: object) -> dict[str, object]:
    """Return the settings and counters of a consumer, by name. Pure.

    `sources` are dataclasses; values of other types than numbers and texts are left out.
    """
    facts: dict[str, object] = {"version": __version__}
    for source in sources:
        for field in fields(source):  # type: ignore[arg-type]
            value = getattr(source, field.name)
            if isinstance(value, float):
                facts[field.name] = round(value, 3)
            elif isinstance(value, enum.Enum):
                facts[field.name] = value.name
            elif isinstance(value, str | int):
                facts[field.name] = value
    return facts


def _queue_order(one: ProcessQueueInfo) -> tuple[str, int, str]:
    return one.queue.topic, one.queue.queue_id, one.queue.broker_name
