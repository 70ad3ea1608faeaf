"""Without pyarrow all else works, and what needs it says so."""

import subprocess
import sys

import pytest

from ternmq_model.columns.pyarrow_support import check_pyarrow, has_pyarrow
from ternmq_model.errors import MissingPackage

WITHOUT = """
import sys
sys.modules["pyarrow"] = None
import ternmq_model.columns.column_names, ternmq_model.columns.pyarrow_support
import ternmq_store.scan.directory, ternmq_store.scan.user_topics, ternmq_store.scan.scan_spec
from ternmq_model.errors import MissingPackage
try:
    import ternmq_store.scan.queue_scan
except MissingPackage as error:
    print(error)
"""


def test_missing_pyarrow_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert not has_pyarrow()
    with pytest.raises(MissingPackage, match=r"ternmq\[arrow\]"):
        check_pyarrow()


def test_scan_planning_imports_without_pyarrow_and_batch_building_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert "pip install '/path/to/ternmq[arrow]'" in done.stdout
