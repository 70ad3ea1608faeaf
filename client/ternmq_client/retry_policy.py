"""Waits between the attempts of a retried call."""

from dataclasses import dataclass
from random import Random

from ternmq_model.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Waits with ceilings that double up to a limit. Each wait is random below its ceiling.

    Without this jitter all clients of a broker would reconnect at one moment.
    """

    attempts_max: int = 3
    """Most attempts, the first one included."""

    delay_s_first: float = 0.1
    """Ceiling of the wait before the second attempt, s."""

    delay_s_max: float = 5.0
    """Highest ceiling, s."""

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise ConfigError("retry.attempts_max", self.attempts_max, "must be 1 or more")
        if not 0 <= self.delay_s_first <= self.delay_s_max:
            rule = f"must be 0 to delay_s_max, which is {self.delay_s_max}"
            raise ConfigError("retry.delay_s_first", self.delay_s_first, rule)

    def ceiling_s(self, failures: int) -> float:
        """Return the ceiling of the wait after `failures` in a row, at least 1, s."""
        return min(self.delay_s_first * 2.0 ** min(failures - 1, 32), self.delay_s_max)

    def delay_s(self, failures: int, random: Random) -> float:
        """Return the wait after `failures` in a row, s."""
        return random.uniform(0.0, self.ceiling_s(failures))
