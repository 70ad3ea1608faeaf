import subprocess
import sys

import pytest

from ternmq_console.main import LOGGERS
from tools.project import PACKAGES

LOADED = """
import sys
from ternmq_console.main import ternmq
command = ternmq
for word in sys.argv[2:]:
    command = command.get_command(None, word)
assert sys.argv[1] not in sys.modules, sys.argv[1]
"""


def test_warnings_of_every_package_are_silenced() -> None:
    assert sorted(LOGGERS) == sorted(package.name for package in PACKAGES.values())


@pytest.mark.parametrize(
    ("verb", "package"),
    [
        ("topic create", "numpy"),
        ("group describe", "numpy"),
        ("dlq redrive", "numpy"),
        ("cluster list", "numpy"),
        ("message get", "numpy"),
        ("broker status", "ternmq_broker.server"),
        ("nameserver", "ternmq_broker.server"),
    ],
)
def test_command_starts_without_packages_it_does_not_need(verb: str, package: str) -> None:
    subprocess.run([sys.executable, "-c", LOADED, package, *verb.split()], check=True)
