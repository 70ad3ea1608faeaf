"""Settings of consumers: what cannot be is named before anything begins."""

from typing import Any

import pytest

from ternmq_consumer.config import PullConsumerConfig, PushConsumerConfig
from ternmq_model.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "value", "rule"),
    [
        ("message_model", "BROADCASTING", "must be one of MessageModel.CLUSTERING"),
        ("offsets_kept", "AT_BROKERS", "must be one of OffsetsKept.LOCALLY"),
        ("consume_from", "FIRST_OFFSET", "must be one of ConsumeFrom.LAST_OFFSET"),
        ("offsets_folder", "/var/offsets", "must be a pathlib.Path"),
        ("workers", 2.5, "must be a whole number"),
        ("workers", True, "must be a whole number"),
        ("workers", "3", "must be a whole number"),
        ("workers", 0, "must be 1 or more"),
        ("batch_messages", 1.0, "must be a whole number"),
        ("retries_max", 1.5, "must be a whole number"),
        ("retries_max", -2, "must be -1 to 65536"),
        ("retries_max", 65_537, "must be -1 to 65536"),
        ("suspend_s", float("nan"), "a finite number"),
        ("consume_timeout_s", float("inf"), "a finite number"),
        ("drop_wait_s", -1, "must be 0 or more"),
    ],
)
def test_impossible_setting_is_refused_by_name(setting: str, value: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"consumer\.{setting}=.*{rule}"):
        PushConsumerConfig(**{setting: value})


def test_pull_consumer_reads_ahead_by_whole_numbers() -> None:
    wrong: dict[str, Any] = {"pull_threshold_messages": 1.5}
    with pytest.raises(ConfigError, match="a whole number"):
        PullConsumerConfig(**wrong)
