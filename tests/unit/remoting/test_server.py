import logging

import pytest

from ternmq_remoting.server import CRASH_LOG_INTERVAL_S, CrashLog


def test_a_handler_that_always_crashes_is_logged_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = CrashLog()
    for now_s in (0.0, 0.1, 5.0, CRASH_LOG_INTERVAL_S, CRASH_LOG_INTERVAL_S + 1):
        log.report("/a/B", KeyError("x"), now_s=now_s)
    log.report("/a/C", KeyError("y"), now_s=1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "handler crashed rpc=/a/B suppressed=0",
        "handler crashed rpc=/a/B suppressed=2",
        "handler crashed rpc=/a/C suppressed=0",
    ]
    assert all(record.exc_info and record.levelno == logging.ERROR for record in caplog.records)
