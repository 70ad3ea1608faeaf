from enum import Enum

import pytest

from ternmq_model.errors import ConfigError, UsageError
from ternmq_pipeline.options.option_map import OptionMap


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def option_map(**options: str) -> OptionMap:
    return OptionMap(
        options, known=("someOption", "otherOption"), hints={"theirs": "it is ours here"}
    )


def test_option_names_are_case_insensitive() -> None:
    assert option_map(SOMEOPTION=" x ").text("someOption") == "x"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("someOptoin", "did you mean 'someOption'?"),
        ("theirs", "it is ours here"),
        ("zzz", "there is no such option"),
        ("x" * 1_000_000, "there is no such option"),
        ("ſomeOption\u0000", "there is no such option"),
        ("", "there is no such option"),
    ],
)
def test_unknown_option_is_refused_with_the_nearest_known_one(name: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        option_map(**{name: "x"})
    assert told in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "name", ["checkpointLocation", "queryName", "__partition_columns", "spark.sql.x"]
)
def test_options_added_by_spark_are_ignored(name: str) -> None:
    assert "someOption" not in option_map(**{name: "x"})


def test_option_in_two_cases_is_given_twice() -> None:
    with pytest.raises(ConfigError, match=r"someOption=.*twice"):
        option_map(someOption="1", SOMEOPTION="2")


@pytest.mark.parametrize("value", [1, None, 1.5, True, b"x", ["x"], float("nan")])
def test_non_text_value_is_refused(value: object) -> None:
    options: dict[str, object] = {"someOption": value}
    with pytest.raises(ConfigError, match=r"someOption=.*must be a text"):
        option_map(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", " ", "nan", "NaN", "inf", "-1", "1.0", "1e3", "0x10", "١٢", "1_000", "9" * 19, "9" * 5000],
)
def test_number_out_of_range_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        option_map(someOption=text).integer("someOption", None, minimum=0, maximum=1 << 40)
    assert str(caught.value).startswith("someOption=")
    assert len(str(caught.value)) < 300


def test_number_within_its_range_is_accepted() -> None:
    assert option_map(someOption="+7").integer("someOption", None, minimum=7, maximum=7) == 7
    assert option_map().integer("someOption", 3, minimum=0) == 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("500ms", 0.5), ("1 MIN", 60)],
)
def test_duration_has_sparks_units(text: str, seconds: float) -> None:
    assert option_map(someOption=text).seconds("someOption", 1, minimum=0, maximum=1e6) == seconds


def test_kafka_duration_without_a_unit_is_in_milliseconds() -> None:
    options = option_map(someOption="250", otherOption="15m")
    assert options.milliseconds("someOption", 1, minimum=0, maximum=1_000_000) == 250
    assert options.milliseconds("otherOption", 1, minimum=0, maximum=1_000_000) == 900_000


@pytest.mark.parametrize("text", ["-1s", "nan", "inf", "1y", "s", "1e9", "9" * 15, "1 s 2", "１s"])
def test_malformed_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^someOption="):
        option_map(someOption=text).seconds("someOption", 1, minimum=1, maximum=100)


def test_choices_and_booleans_are_case_insensitive() -> None:
    assert option_map(someOption="BLUE").choice("someOption", Colour.RED) is Colour.BLUE
    assert option_map(someOption="True").boolean("someOption", False)
    with pytest.raises(ConfigError, match="must be one of red, blue"):
        option_map(someOption="green").choice("someOption", Colour.RED)
    with pytest.raises(ConfigError, match="must be true or false"):
        option_map(someOption="yes").boolean("someOption", False)


def test_mutually_exclusive_options_are_taken_one_at_a_time() -> None:
    both = option_map(someOption="1", otherOption="2")
    with pytest.raises(UsageError, match="someOption and otherOption"):
        both.one_of("someOption", "otherOption", needed=False)
    with pytest.raises(UsageError, match="one of the options someOption, otherOption"):
        option_map().one_of("someOption", "otherOption", needed=True)
