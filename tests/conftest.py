"""What every test shares: how often random tests repeat, and on what system they think they are.

`TERNMQ_SOAK=1` repeats random tests much more often. `TESTS_WITHOUT_LINUX=1` takes away what only
Linux has, so that the fallbacks for macOS are tested too.
"""

import gc
import os

from hypothesis import HealthCheck, settings

from tests.support.without_linux import forget_linux

# As rarely as in a broker: with Python's 700, cycles were looked for in a tenth of all time.
gc.set_threshold(50_000, 10, 10)

# Machines differ in speed, so no example has a deadline; a failure prints the blob that repeats it.
settings.register_profile("quick", deadline=None, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    print_blob=True,
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("soak" if os.environ.get("TERNMQ_SOAK") else "quick")

if os.environ.get("TESTS_WITHOUT_LINUX"):
    forget_linux()
