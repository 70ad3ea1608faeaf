import click
import pytest
from click.testing import CliRunner

from ternmq_console.main import ternmq
from ternmq_console.pipeline import setting, start


def test_a_setting_of_spark_has_a_name_and_a_value() -> None:
    assert setting("spark.driver.memory=4g") == ("spark.driver.memory", "4g")
    assert setting("spark.x=a=b") == ("spark.x", "a=b")
    for wrong in ("spark.x", "driver.memory=4g", "=4g", ""):
        with pytest.raises(click.BadParameter, match="no setting"):
            setting(wrong)


def test_a_begin_is_an_edge_or_a_time() -> None:
    assert [start(text) for text in ("earliest", "latest")] == ["earliest", "latest"]
    assert start("1970-01-01T00:00:01Z") == "1000"
    with pytest.raises(click.BadParameter):
        start("soon")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["archive", "T"], "--to"),
        (["archive", "T", "--to", "d", "--available-now", "--interval", "5s"], "--interval"),
        (["archive", "T", "--to", "d", "--conf", "x"], "--conf"),
        (["replay", "T", "--topic", "U"], "--checkpoint DIR"),
        (["replay", "T", "--topic", "U", "--once", "--checkpoint", "d"], "--once"),
        (["redrive", "--group", "g"], "--checkpoint DIR"),
        (["redrive"], "--group"),
        (["report", "--hours", "0"], "--hours"),
        (["report", "--slow-after", "soon"], "soon"),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_refused(arguments: list[str], named: str) -> None:
    done = CliRunner().invoke(ternmq, ["pipeline", *arguments])
    assert done.exit_code == 2
    assert named in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["archive", "T", "--to", "d"],
        ["replay", "T", "--parquet", "d", "--once"],
        ["redrive", "--group", "g", "--dry-run"],
        ["report"],
    ],
)
def test_a_cluster_that_does_not_answer_is_exit_code_4(arguments: list[str]) -> None:
    done = CliRunner().invoke(ternmq, ["pipeline", *arguments, "--nameserver", "127.0.0.1:1"])
    assert done.exit_code == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith("ternmq: ")
