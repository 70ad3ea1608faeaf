"""pyarrow, for the modules here: a missing one is told as what it is.

Untyped, since what stubs know of building arrays from buffers is narrower than what there is.
"""

import importlib
from typing import Any, Final

from ternmq_store.columns.pyarrow_support import check_pyarrow

check_pyarrow()

arrow: Final[Any] = importlib.import_module("pyarrow")
compute: Final[Any] = importlib.import_module("pyarrow.compute")
