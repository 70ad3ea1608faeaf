"""Which changes let messages go earlier."""

import pytest

from ternmq_console.retention_losses import retention_losses, settings_losses

NOW = {
    "broker.trace": "true",
    "store.clean_forcibly": "true",
    "store.disk_clean_percent": "75",
    "store.disk_force_percent": "85",
    "store.disk_full_percent": "90",
    "store.file_reserved_hours": "72",
}
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store.disk_clean_percent", "74"),
        ("store.disk_force_percent", "70"),
        ("store.file_reserved_hours", "71"),
    ],
)
def test_lowered_limit_is_a_loss_that_names_both_values(name: str, value: str) -> None:
    (line,) = settings_losses(NOW, {name: value, "broker.trace": "false"})
    assert line.startswith(f"{name}={value}, {NOW[name]} before: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store.file_reserved_hours", "72"),
        ("store.file_reserved_hours", "96"),
        ("store.file_reserved_hours", "x"),
        ("store.clean_forcibly", "true"),
        ("store.clean_forcibly", "false"),
        ("store.delete_when", "05"),
        ("broker.trace", "false"),
    ],
)
def test_other_changes_cost_nothing(name: str, value: str) -> None:
    assert settings_losses(NOW, {name: value}) == []


def test_forced_cleaning_that_begins_is_a_loss() -> None:
    (line,) = settings_losses(
        dict(NOW, **{"store.clean_forcibly": "false"}), {"store.clean_forcibly": "on"}
    )
    assert "have not expired" in line


def test_shorter_retention_is_a_loss_on_each_broker_that_keeps_messages_longer() -> None:
    before = {"a": 25, "b": 24, "c": 20}
    changes_ms = {name: (hours * HOUR_MS, 24 * HOUR_MS) for name, hours in before.items()}
    assert retention_losses("T", changes_ms) == [
        "a: messages of T that are 1d old can no longer be read, 25h before"
    ]
