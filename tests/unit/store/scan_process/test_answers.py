"""Answers of the scanning process to requests about a store that lies in memory."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from ternmq_model.response_code import ResponseCode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan_process.answers import answers
from ternmq_store.scan_process.frames import FrameKind, ScanAnswer, ScanRefusal, ScanRequest
from tests.unit.store.scan_process.test_frames import REQUEST

PLAIN = replace(REQUEST, root="/nowhere", expression_type="TAG", expression="*", columns=("body",))


def said(request: ScanRequest) -> list[ScanAnswer]:
    return list(answers(RealFileSystem())(request))


def refusal(said: list[ScanAnswer]) -> ScanRefusal:
    assert said[-1].kind is FrameKind.END
    assert said[-2].kind is FrameKind.REFUSAL
    return ScanRefusal.from_bytes(bytes(said[-2].payload))


@pytest.mark.parametrize("name", ["pyarrow", "ternmq_model.columns.batches"])
def test_scan_requests_are_refused_without_arrow(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in [each for each in sys.modules if each.startswith("ternmq_model.columns")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    told = refusal(said(PLAIN))
    assert told.code is ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "serves no Scan" in told.remark


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (OSError(5, "Input/output error", "/log"), "cannot be scanned: [Errno 5] Input/output er"),
        (ValueError("cannot map"), "the scan failed: ValueError: cannot map"),
    ],
)
def test_unforeseen_failure_is_reported_by_name(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, told: str
) -> None:
    pytest.importorskip("pyarrow")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(StoreDirectory, "__init__", fail)
    found = refusal(said(PLAIN))
    assert found.code is ResponseCode.SYSTEM_ERROR
    assert told in found.remark


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ResponseCode.SYSTEM_ERROR),
        ({"columns": ("no",)}, ResponseCode.INVALID_PARAMETER),
        ({"expression_type": "SQL92", "expression": "a >"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_impossible_scan_is_a_refusal_and_not_the_end_of_the_process(
    fields: dict[str, Any], code: ResponseCode
) -> None:
    pytest.importorskip("pyarrow")
    assert refusal(said(replace(PLAIN, **fields))).code is code
