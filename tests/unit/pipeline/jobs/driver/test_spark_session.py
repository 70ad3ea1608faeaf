import logging
from pathlib import Path

import pytest

from ternmq_client import retry_timeout
from ternmq_pipeline.jobs.driver.spark_session import has_jvm, waits_logged


def test_jvm_of_a_program_or_its_spark_submit_is_recognized() -> None:
    assert has_jvm(object(), {})
    assert has_jvm(None, {"PYSPARK_GATEWAY_PORT": "41234"})
    assert not has_jvm(None, {"PATH": "/bin"})


def test_waits_that_spark_prints_are_logged_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    retry_timeout.tell("no nameserver answers: ä", 109)
    (line,) = caplog.messages
    caplog.clear()
    log = tmp_path / "log"
    log.write_text("WARN Executor: lost\n", "utf-8")
    with waits_logged(log), log.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n\tat of.spark\nno {line}\n{line} again\n{line} cut")
    assert caplog.messages == [line, f"{line} again"]
    assert {one.levelno for one in caplog.records} == {logging.WARNING}
    assert {one.name for one in caplog.records} == {retry_timeout.__name__}
