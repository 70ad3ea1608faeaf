from ternmq_console.main import LOGGERS
from tools.project import PACKAGES


def test_every_package_is_kept_from_printing_its_warnings() -> None:
    assert sorted(LOGGERS) == sorted(package.name for package in PACKAGES.values())
