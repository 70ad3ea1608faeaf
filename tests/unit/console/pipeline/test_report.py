import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ternmq_console.pipeline import report
from ternmq_console.pipeline.report import report_document
from ternmq_pipeline.jobs.cluster_report.report_tables import TABLES, ClusterReport
from tests.support.reports import empty_report, group_row, some_report


def test_json_report_has_every_table_with_times_as_texts() -> None:
    made = some_report(groups=[group_row(lag_s=0.123456)])
    told = json.loads(json.dumps(report_document(made)))
    assert told["made"] == "2026-11-20T23:09:07.000Z"
    assert set(TABLES) <= set(told)
    assert told["groups"][0]["lag_s"] == 0.123
    assert told["topics"][0]["last_stored"] == "2026-11-20T23:09:06.950Z"


def test_empty_cluster_has_tables_without_rows() -> None:
    told = report_document(empty_report())
    assert all(told[table] == [] for table in TABLES)


def test_tables_are_shown_and_requested_files_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    def make_report(nameserver: str, **named: Any) -> ClusterReport:
        asked.append({"nameserver": nameserver, **named})
        return some_report()

    monkeypatch.setattr(report, "make_report", make_report)
    command = ["--nameserver", "ns:1", "--html", "r.html", "--hours", "3", "--slow-after", "90s"]
    done = CliRunner().invoke(report.report, command)
    assert done.exit_code == 0, done.output
    assert asked == [
        {"nameserver": "ns:1", "html": Path("r.html"), "parquet": None, "hours": 3}
        | {"slow_after_s": 90.0}
    ]
    headings = [line for line in done.stdout.splitlines() if line.isupper() and " " not in line]
    assert headings == ["TOPICS", "GROUPS", "MEMBERS"]
    assert "DEAD LETTERS" in done.stdout
    assert "2026-11-20T23:09:06.950Z" in done.stdout
    assert done.stderr == "wrote r.html\n"
