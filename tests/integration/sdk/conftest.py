"""The SDK against a cluster: two brokers that the session starts, or the one that is told.

`TERNMQ_TEST_CLUSTER=HOST:PORT pytest tests/integration/sdk` runs the suite against the cluster of
that NameServer. Every test has topics and groups of its own, so that any cluster will do.
"""

import os
import secrets
from collections.abc import Generator

import pytest

from tests.support.processes import running_cluster
from tests.support.sdk_place import Place


@pytest.fixture(scope="session")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    told = os.environ.get("TERNMQ_TEST_CLUSTER")
    if told:
        yield told
    else:
        with running_cluster(tmp_path_factory.mktemp("cluster")) as address:
            yield address


@pytest.fixture
def place(nameserver: str) -> Place:
    mark = secrets.token_hex(4)
    return Place(nameserver, f"topic_{mark}", f"group_{mark}")
