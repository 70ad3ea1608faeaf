"""How long to wait before trying again."""

from random import Random

import pytest

from ternmq_client.retry_policy import RetryPolicy
from ternmq_model.errors import ConfigError


def test_backoff_doubles_up_to_a_limit_and_is_drawn_below_it() -> None:
    policy = RetryPolicy(attempts_max=6, delay_s_first=0.1, delay_s_max=0.5)
    assert [policy.ceiling_s(n) for n in range(1, 6)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert policy.ceiling_s(10_000) == 0.5
    random = Random(1)
    delays = [policy.delay_s(n, random) for n in range(1, 6)]
    assert all(0 <= delay <= policy.ceiling_s(n) for n, delay in enumerate(delays, 1))
    assert policy.delay_s(1, Random(1)) == delays[0]


@pytest.mark.parametrize(
    "changes", [{"attempts_max": 0}, {"delay_s_first": -1.0}, {"delay_s_max": 0.01}]
)
def test_impossible_policy_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**changes)  # type: ignore[arg-type]
