"""One cluster in containers for all of these tests, which leave it whole.

It ends with them: the tests that follow have the machine and its ports to themselves.
"""

from collections.abc import Generator

import pytest

from tests.support.containers import running_containers, what_is_missing


@pytest.fixture(scope="package", autouse=True)
def containers() -> Generator[None]:
    if missing := what_is_missing():
        pytest.skip(f"needs Docker: {missing}")
    with running_containers():
        yield
