"""Consume statuses: the answers that a listener may give, and their meaning. Pure."""

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from ternmq_model.arguments import check_seconds, is_whole
from ternmq_model.errors import UsageError

DEAD_LETTER: Final = -1
"""The delay level that means: never again."""

DELAY_LEVEL_MAX: Final = 18
SUSPEND_S_MIN: Final = 0.01
SUSPEND_S_MAX: Final = 30.0


class ConsumeStatus(enum.Enum):
    """Answer of a listener for the message, or the batch, that it was handed.

    Attributes:
        SUCCESS: It is finished.
        RECONSUME_LATER: Hand it over again after a pause. Raising an exception says the same.
        DEAD_LETTER: Put it among the group's dead letters now: trying again would not help.

    Source: RocketMQ `ConsumeConcurrentlyStatus`, `ConsumeOrderlyStatus`.
    """

    SUCCESS = enum.auto()
    RECONSUME_LATER = enum.auto()
    DEAD_LETTER = enum.auto()


@dataclass(frozen=True, slots=True)
class ReconsumeLater:
    """An answer that says more than `RECONSUME_LATER`: when to try again, and what went well.

    Raises:
        UsageError: A number out of its range. In a listener that is a failure like any other.

    Source: RocketMQ `ConsumeConcurrentlyContext`, `ConsumeOrderlyContext`.
    """

    delay_level: int = 0
    """Delay level of the retry: 0 = longer after each attempt, 1 to 18 = after that delay level,
    −1 = never, it is a dead letter. An orderly consumer knows 0 and −1; it takes others as 0."""

    finished: int = 0
    """Messages of a batch that went well, from its beginning."""

    suspend_s: float | None = None
    """Rest of an orderly queue before it is tried again, 0.01 to 30 s; None = as the settings
    say. Means nothing to a concurrent consumer."""

    def __post_init__(self) -> None:
        for name in ("delay_level", "finished"):
            number: object = getattr(self, name)
            if not is_whole(number):  # else it would fail where no listener can be blamed
                raise UsageError(f"{name} is {number!r}: must be a whole number")
        if not DEAD_LETTER <= self.delay_level <= DELAY_LEVEL_MAX:
            raise UsageError(f"delay_level is {self.delay_level}: must be -1 to {DELAY_LEVEL_MAX}")
        if self.finished < 0:
            raise UsageError(f"finished is {self.finished}: must be 0 or more")
        if self.suspend_s is not None:
            check_seconds("suspend_s", self.suspend_s)
        if self.suspend_s is not None and not SUSPEND_S_MIN <= self.suspend_s <= SUSPEND_S_MAX:
            raise UsageError(
                f"suspend_s is {self.suspend_s}: must be {SUSPEND_S_MIN} to {SUSPEND_S_MAX}"
            )


ListenerAnswer: TypeAlias = ConsumeStatus | ReconsumeLater | bool | None
"""None, True and SUCCESS: finished. False and RECONSUME_LATER: again later."""

LATER: Final = ReconsumeLater()
_NEVER: Final = ReconsumeLater(DEAD_LETTER)


def reconsume_later_of(answer: object) -> ReconsumeLater | None:
    """Return how a listener's answer wants the messages again; None = they are finished.

    Raises:
        UsageError: It is no answer. Taking it for success would lose messages of a listener that
            says `"RECONSUME_LATER"` or 0.
    """
    if answer is None or answer is True:
        return None
    if answer is False or answer is ConsumeStatus.RECONSUME_LATER:
        return LATER
    if answer is ConsumeStatus.DEAD_LETTER:
        return _NEVER
    if isinstance(answer, ReconsumeLater):
        return answer
    if answer is ConsumeStatus.SUCCESS:
        return None
    raise UsageError(
        f"the listener answered {answer!r}: must be None, True or ConsumeStatus.SUCCESS when it is "
        "done, else False, another ConsumeStatus or a ReconsumeLater"
    )
