"""Consume statuses: the answers that a listener may give, and their meaning. Pure."""

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from ternmq_model.arguments import check_seconds, is_whole
from ternmq_model.errors import UsageError

DEAD_LETTER: Final = -1
"""Delay level of a dead letter: no retry."""

DELAY_LEVEL_MAX: Final = 18
SUSPEND_S_MIN: Final = 0.01
SUSPEND_S_MAX: Final = 30.0


class ConsumeStatus(enum.Enum):
    """Answer of a listener for a message or a batch.

    Attributes:
        SUCCESS: The message is finished.
        RECONSUME_LATER: The message comes again after a delay. An exception has the same effect.
        DEAD_LETTER: The message becomes a dead letter at once, without retries.

    Source: RocketMQ `ConsumeConcurrentlyStatus`, `ConsumeOrderlyStatus`.
    """

    SUCCESS = enum.auto()
    RECONSUME_LATER = enum.auto()
    DEAD_LETTER = enum.auto()


@dataclass(frozen=True, slots=True)
class ReconsumeLater:
    """Answer `RECONSUME_LATER` with a delay, and with the number of finished messages.

    Raises:
        UsageError: A number is out of its range. In a listener this error is a failed call.

    Source: RocketMQ `ConsumeConcurrentlyContext`, `ConsumeOrderlyContext`.
    """

    delay_level: int = 0
    """Delay level of the retry: 0 = longer after each attempt, 1 to 18 = this delay level,
    −1 = no retry, the message is a dead letter. An orderly consumer treats 1 to 18 as 0."""

    finished: int = 0
    """Number of finished messages at the begin of a batch."""

    suspend_s: float | None = None
    """Pause of an orderly queue before the retry, 0.01 to 30 s; None = `suspend_s` of the settings.
    Without effect for a concurrent consumer."""

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
"""Answer of a listener. None, True and SUCCESS: finished. False and RECONSUME_LATER: retry."""

LATER: Final = ReconsumeLater()
_NEVER: Final = ReconsumeLater(DEAD_LETTER)


def reconsume_later_of(answer: object) -> ReconsumeLater | None:
    """Return the retry that a listener's answer requests; None = the messages are finished.

    Raises:
        UsageError: The answer has another type. Success for it would lose the messages of a
            listener that returns `"RECONSUME_LATER"` or 0.
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
