"""pyarrow for this package, with a clear error if it is missing.

The module is untyped, since the stubs do not cover arrays that are built from buffers.
"""

import importlib
from typing import Any, Final

from ternmq_model.columns.pyarrow_support import check_pyarrow

check_pyarrow()

arrow: Final[Any] = importlib.import_module("pyarrow")
compute: Final[Any] = importlib.import_module("pyarrow.compute")
