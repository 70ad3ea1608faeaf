import pytest

from ternmq_model.errors import ConfigError
from ternmq_pipeline.strict_json import read_object, shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be JSON"),
        ("[]", "must be a JSON object"),
        ("1", "must be a JSON object"),
        ('{"a":NaN}', "NaN is no number"),
        ('{"a":-Infinity}', "-Infinity is no number"),
        ('{"a":1,"a":2}', "'a' is there twice"),
        ('{"a":{"b":1,"b":2}}', "'b' is there twice"),
        ('{"a":' * 100_000, "nested too deeply"),
        (" " * (8 << 20) + "{}", "characters long"),
    ],
)
def test_malformed_json_object_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_object(text, option="assign")
    assert caught.value.setting == "assign"
    assert told in caught.value.rule


def test_long_values_are_cut_in_errors() -> None:
    assert shown("x" * 200) == "x" * 100 + "…"
    assert shown("x") == "x"
    assert shown(7) == 7
