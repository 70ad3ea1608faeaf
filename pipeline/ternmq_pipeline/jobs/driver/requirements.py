"""Requirements of jobs beyond the core: the extra, and Java for Spark."""

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ternmq_model.errors import MissingPackage
from ternmq_model.version import install_command


def need(what: str, *packages: str) -> None:
    """Check that packages of the extra are installed.

    Args:
        what: Feature that needs the packages, in the user's words.
        packages: Import names of the packages.

    Raises:
        MissingPackage: A package is missing. The error names the extra.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingPackage(f"{what} needs {', '.join(missing)}: {install_command('spark')}")


def need_java(what: str, environment: Mapping[str, str]) -> None:
    """Check that Spark will find Java.

    Args:
        what: Feature that needs Java, in the user's words.
        environment: Variables of the process, with JAVA_HOME or PATH.

    Raises:
        MissingPackage: There is no Java.
    """
    home = environment.get("JAVA_HOME", "")
    if home:
        program = Path(home, "bin", "java")
        if not os.access(program, os.X_OK):
            raise MissingPackage(f"{what} needs Java 17 or later: JAVA_HOME={home} has no bin/java")
    elif shutil.which("java", path=environment.get("PATH", "")) is None:
        raise MissingPackage(
            f"{what} needs Java 17 or later, for Spark: install it, or set JAVA_HOME"
        )
