"""A stand-in for the brokers that a sink writes to: half messages in a list."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from ternmq_model.errors import RefusedError, TernError, Unreachable
from ternmq_model.message import Message
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.staging import EndFailed, StagedMessage, StagedMessages, StageFailed


class ToyStager:
    """Holds what is staged, ended and visible. Entered any number of times.

    Set `stage_fails_after`, `end_fails_after` or `is_away` to let it fail.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.asked = 0
        self.messages: list[Message] = []
        self.states_of: list[TransactionState] = []
        self.staged_for: set[tuple[str, int]] = set()
        self.stage_fails_after: int | None = None
        """So many messages can be staged in all."""
        self.stage_fails_with: TernError = Unreachable("the toy is full")
        self.commits_left: int | None = None
        """So many can be committed in all."""
        self.is_away = False
        self.before_commit: Callable[[], None] = lambda: None

    def __call__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        self.opened += 1
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def bodies(self, state: TransactionState) -> list[bytes]:
        """Return the bodies of all messages that are in `state`."""
        pairs = zip(self.messages, self.states_of, strict=True)
        return [message.body for message, of in pairs if of is state]

    def stage(
        self, messages: Sequence[Message], *, staged_for: str, immunity_s: int, timeout_s: float
    ) -> StagedMessages:
        """Take them, or as many as it may."""
        assert timeout_s > 0
        self.staged_for.add((staged_for, immunity_s))
        first = len(self.messages)
        room = len(messages)
        if self.stage_fails_after is not None:
            room = min(room, self.stage_fails_after - first)
        for message in messages[:room]:
            message.encoded_properties()
            self.messages.append(message)
            self.states_of.append(TransactionState.OPEN)
        staged = StagedMessages.of(
            StagedMessage(
                "broker-a", message.topic, PhysicalOffset(first + at), f"{first + at:032X}"
            )
            for at, message in enumerate(messages[:room])
        )
        if room < len(messages):
            left = len(messages) - room
            reason = self.stage_fails_with
            raise StageFailed(reason, staged, failures=left, count=len(messages), first=room)
        return staged

    def stage_columns(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: Any,
        keys: Any,
        properties: Any,
        sharding_keys: Any,
        staged_for: str,
        immunity_s: int,
        timeout_s: float,
    ) -> StagedMessages:
        """Take them, or as many as it may, as messages."""

        def column(array: Any) -> list[Any]:
            return [None] * len(bodies) if array is None else array.to_pylist()

        messages = [
            Message(
                topic,
                body.encode() if isinstance(body, str) else body,
                tag or "",
                key or (),
                dict(pairs),
                sharding_key or "",
            )
            for body, tag, key, pairs, sharding_key in zip(
                *map(column, (bodies, tags, keys, properties, sharding_keys)), strict=True
            )
        ]
        return self.stage(
            messages, staged_for=staged_for, immunity_s=immunity_s, timeout_s=timeout_s
        )

    def states(
        self, staged: Sequence[StagedMessage], *, timeout_s: float
    ) -> list[TransactionState]:
        """Tell of each what became of it."""
        self.asked += 1
        assert timeout_s > 0
        if self.is_away:
            raise Unreachable("nobody answers")
        return [self.states_of[one.transaction] for one in staged]

    def end(
        self, staged: Sequence[StagedMessage], resolution: Resolution, *, timeout_s: float
    ) -> None:
        """End those that are open."""
        assert timeout_s > 0
        commits = resolution is Resolution.COMMIT
        wanted = TransactionState.COMMITTED if commits else TransactionState.ROLLED_BACK
        if commits:
            self.before_commit()
        failed: dict[int, TernError] = {}
        not_open = 0
        for place, one in enumerate(staged):
            state = self.states_of[one.transaction]
            if self.is_away or (commits and self.commits_left == 0):
                failed[place] = Unreachable("nobody answers")
            elif state is TransactionState.OPEN:
                self.states_of[one.transaction] = wanted
                if commits and self.commits_left is not None:
                    self.commits_left -= 1
            elif state is not wanted:
                failed[place] = RefusedError(1, "it ended otherwise")
                not_open += 1
        if failed:
            raise EndFailed(failed, failures=len(failed), count=len(staged), not_open=not_open)
