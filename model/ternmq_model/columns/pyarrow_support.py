"""Presence of pyarrow, which an extra installs."""

from importlib.util import find_spec

from ternmq_model.errors import MissingPackage
from ternmq_model.version import install_command


def has_pyarrow() -> bool:
    """Return whether pyarrow is installed, without importing it."""
    return find_spec("pyarrow") is not None


def check_pyarrow() -> None:
    """Check that pyarrow is installed. Call it before an import of modules that need pyarrow.

    Raises:
        MissingPackage: pyarrow is not installed.
    """
    if not has_pyarrow():
        raise MissingPackage(
            "Arrow columns need a package that is not installed: " + install_command("arrow")
        )
