import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ternmq_console.generate.alert_rules import AlertThresholds, alert_rules, rules_text
from ternmq_console.generate.boards import BOARDS
from ternmq_console.generate.panels import board_json
from ternmq_console.main import ternmq


def invoke(*words: str) -> Result:
    return CliRunner().invoke(ternmq, words, catch_exceptions=False)


def text_of(*words: str) -> str:
    done = invoke(*words)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_grafana_writes_each_board_into_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "boards"
    done = invoke("generate", "grafana", "--out", f"{folder}")
    assert done.exit_code == 0
    assert {path.name: json.loads(path.read_text()) for path in folder.iterdir()} == {
        f"ternmq-{board.name}.json": board_json(board) for board in BOARDS
    }
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"wrote {folder / f'ternmq-{board.name}.json'}" for board in BOARDS
    ]


def test_rules_are_printed_or_written(tmp_path: Path) -> None:
    text = rules_text(
        alert_rules(AlertThresholds(lag_s=600, disk_free_bytes=1 << 30), "queue"), "https://wiki/x"
    )
    given = ("--set", "alerts.lag_s=10m", "--set", "alerts.disk_free_bytes=1GiB", "--job", "queue")
    words = ("generate", "prometheus-rules", *given, "--runbooks", "https://wiki/x")
    assert text_of(*words) == text
    file = tmp_path / "rules.yaml"
    file.write_text("former")
    assert text_of(*words, "--out", f"{file}") == ""
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("alerts.lags=1", "no such setting; did you mean 'alerts.lag_s'?"),
        ("alerts.lag_s=soon", "must be a duration such as 500ms"),
        ("alerts.check_backs=-1", "must be 0 to"),
        ("lag_s", "must be section.name=value"),
    ],
)
def test_wrong_threshold_is_named(given: str, told: str) -> None:
    done = invoke("generate", "prometheus-rules", "--set", given)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_file_in_place_of_the_folder_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = invoke("generate", "grafana", "--out", f"{tmp_path / 'taken' / 'boards'}")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
