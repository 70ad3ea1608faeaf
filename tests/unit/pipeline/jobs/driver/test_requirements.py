from pathlib import Path

import pytest

from ternmq_model.errors import MissingPackage
from ternmq_pipeline.jobs.driver.requirements import need, need_java


def test_missing_package_is_named_with_how_to_get_it() -> None:
    with pytest.raises(
        MissingPackage, match=r"archive needs no_such_thing: pip install '/path/to/ternmq\[s"
    ):
        need("archive", "json", "no_such_thing")
    need("archive", "json")


def test_missing_java_is_detected(tmp_path: Path) -> None:
    with pytest.raises(MissingPackage, match="replay needs Java 17 or later, for Spark"):
        need_java("replay", {"PATH": str(tmp_path)})
    with pytest.raises(MissingPackage, match=f"JAVA_HOME={tmp_path} has no bin/java"):
        need_java("replay", {"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_java_in_either_place_suffices(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.touch(0o755)
    need_java("replay", {"JAVA_HOME": str(tmp_path)})
    need_java("replay", {"PATH": str(java.parent)})
