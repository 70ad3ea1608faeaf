"""Settings of a producer."""

from dataclasses import fields

import pytest

from ternmq_model.errors import ConfigError
from ternmq_producer.config import ProducerConfig
from ternmq_producer.queue_selection.latency_fault import FAULT_RULES
from tools.project import ROOT


@pytest.mark.parametrize(
    "changes",
    [
        {"send_timeout_s": 0},
        {"buffer_bytes": 0},
        {"attempts_max": 0},
        {"retry_delay_s": -1},
        {"batch_bytes": 2 << 20},
        {"batch_bytes": 100},
        {"batches_unanswered_max": 3},
        {"latency_fault_rule": 6},
    ],
)
def test_impossible_setting_is_named(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as told:
        ProducerConfig(**changes)  # type: ignore[arg-type]
    assert told.value.setting == f"producer.{next(iter(changes))}"


def test_setting_takes_the_versions_with_fault_rules() -> None:
    assert set(FAULT_RULES) == {4, 5}


def test_retries_follow_the_settings() -> None:
    policy = ProducerConfig(attempts_max=5, retry_delay_s=0.2).retry
    assert [policy.ceiling_s(failures) for failures in range(1, 5)] == [0.2, 0.4, 0.8, 1.0]
    assert policy.attempts_max == 5


def test_every_setting_is_described() -> None:
    page = (ROOT / "docs/reference/client-settings.md").read_text()
    for setting in fields(ProducerConfig):
        assert f"| `{setting.name}` |" in page
