"""What the import of `ternmq.testing.containers` needs, and what `ternmq.testing` does not."""

import importlib.util
import runpy
import subprocess
import sys

import pytest

from ternmq.testing import __file__ as package
from ternmq_model.errors import MissingPackage


def test_import_without_testcontainers_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(name: str) -> None:
        """Find no package."""

    monkeypatch.setattr(importlib.util, "find_spec", find_none)
    with pytest.raises(MissingPackage, match=r"needs testcontainers: pip install .*\[containers\]"):
        runpy.run_path(package.replace("__init__.py", "containers.py"))


def test_clusters_in_this_process_import_no_testcontainers() -> None:
    code = """
import sys, ternmq.testing
assert not {name.partition(".")[0] for name in sys.modules} & {"docker", "testcontainers"}
"""
    subprocess.run([sys.executable, "-c", code], check=True)
