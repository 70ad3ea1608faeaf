"""Presence of pyarrow, which comes with an extra; all else works without it."""

from importlib.util import find_spec

from ternmq_model.errors import MissingPackage
from ternmq_model.version import install_command


def has_pyarrow() -> bool:
    """Return whether pyarrow is installed, without importing it."""
    return find_spec("pyarrow") is not None


def check_pyarrow() -> None:
    """Refuse to go on without pyarrow: before modules that import it are imported.

    Raises:
        MissingPackage: It is not installed.
    """
    if not has_pyarrow():
        raise MissingPackage(
            "Arrow columns need a package that is not installed: " + install_command("spark")
        )
