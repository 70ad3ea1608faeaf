"""TernMQ of commit 675675c, before tables had checksums, as processes.

    older = unpack_older(folder)
    with running_dev(folder / "dev", launcher=older):
        ...

Its sources are test data: not every clone has the history that has them.
"""

import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(__file__).parents[1] / "compat" / "data" / "ternmq-675675c.tar.xz"

_MAIN: Final = """
import importlib, sys
from pathlib import Path
root = Path(sys.argv.pop(1))
for package in root.glob("*/ternmq_*"):
    origin = importlib.import_module(package.name).__file__
    assert Path(origin).parent == package, f"{package.name} is imported from {origin}"
from ternmq_console.main import main
main()
"""


def unpack_older(folder: Path) -> Sequence[str]:
    """Put the version below `folder`; return what precedes its verbs on a command line.

    Such a process fails at once when it would import a package from anywhere else.
    """
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    roles = sorted({str(package.parent) for package in folder.glob("*/ternmq_*")})
    path = ":".join((str(folder), *roles))
    return ("env", f"PYTHONPATH={path}", sys.executable, "-P", "-c", _MAIN, str(folder))
