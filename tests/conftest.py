"""What every test shares: how often random tests repeat."""

import os

from hypothesis import HealthCheck, settings

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
