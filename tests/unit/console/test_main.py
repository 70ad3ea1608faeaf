from ternmq_console.main import LOGGERS
from tools.project import PACKAGES


def test_warnings_of_every_package_are_silenced() -> None:
    assert sorted(LOGGERS) == sorted(package.name for package in PACKAGES.values())
