import json

from ternmq_console.pipeline_report import report_document
from ternmq_pipeline.jobs.reporting.tables import TABLES
from tests.support.reports import empty_report, group_row, some_report


def test_a_report_in_json_has_every_table_with_times_as_texts() -> None:
    made = some_report(groups=[group_row(lag_s=0.123456)])
    told = json.loads(json.dumps(report_document(made)))
    assert told["made"] == "2026-11-20T23:09:07.000Z"
    assert set(TABLES) <= set(told)
    assert told["groups"][0]["lag_s"] == 0.123
    assert told["topics"][0]["last_stored"] == "2026-11-20T23:09:06.950Z"


def test_an_empty_cluster_has_tables_without_rows() -> None:
    told = report_document(empty_report())
    assert all(told[table] == [] for table in TABLES)
