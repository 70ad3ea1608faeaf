"""What every test shares: how often random tests repeat, and on what system they think they are.

`TESTS_EXAMPLES` is described in `tests/support/examples.py`. `TESTS_WITHOUT_LINUX=1` takes away
what only Linux has, so that the fallbacks for macOS are tested too.
"""

import gc
import importlib
import os

from tests.support.examples import load_profile
from tests.support.without_linux import forget_linux

load_profile()

importlib.import_module("ternmq_remoting")  # before gRPC, whose handlers of forks it switches off

# As rarely as in a broker: with Python's 700, cycles were looked for in a tenth of all time.
gc.set_threshold(50_000, 10, 10)

if os.environ.get("TESTS_WITHOUT_LINUX"):
    forget_linux()
