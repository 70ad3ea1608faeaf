import click
import pytest

from ternmq_console.options import duration_ms, duration_text


@pytest.mark.parametrize(
    ("text", "in_ms", "told"),
    [
        ("24h", 86_400_000, "1d"),
        ("90m", 5_400_000, "90m"),
        ("7d", 604_800_000, "7d"),
        ("1500ms", 1_500, "1500ms"),
        ("0", 0, "0d"),
    ],
)
def test_a_duration_is_read_and_told_in_units(text: str, in_ms: int, told: str) -> None:
    assert duration_ms(text) == in_ms
    assert duration_text(in_ms) == told


@pytest.mark.parametrize("text", ["", "24", "h", "1.5h", "-1h", "24 h", "1w"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        duration_ms(text)
