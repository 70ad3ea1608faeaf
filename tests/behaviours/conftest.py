"""Behaviours that applications rely on, run against every kind of cluster.

- `memory`: `Cluster()`, a cluster in this process, for each test.
- `grpc`: `Cluster(network="grpc")`, the same behind real connections.
- `processes`: services in processes of their own, for the session.
- `secured`: the same with a certificate for each service and client, no connection without one, and
  users: brokers by their certificates, and an application that is no administrator by its token.
- `containers`: `TernMQCluster(brokers=2)`, the image of this checkout, for the session.

`TERNMQ_TEST_CLUSTER=memory` chooses one kind. Without it all but the last run, and `make test-all`
chooses `containers`. `TERNMQ_TEST_CLUSTER=HOST:PORT` is any other cluster, by the address of its
NameServer.

Each cluster has two brokers or more. Every test has topics and groups of its own, so that any
cluster will do. The marks `needs_time` and `needs_faults` are for tests that move the time of the
cluster or disturb it: they run in the first two kinds, and take settings of the cluster.
"""

import asyncio
import fcntl
import os
import secrets
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq_remoting.tls import CREDENTIALS_VARIABLE, Credentials
from ternmq_testing.cluster.blocking_cluster import BlockingCluster
from tests.support.certificates import authority, credentials_file, tls_words
from tests.support.processes import BROKERS, running_cluster
from tests.support.sdk_place import Place
from tests.support.users import Users, token_of

IN_PROCESS: Final = ("memory", "grpc")
KINDS: Final = (*IN_PROCESS, "processes", "secured")
APPLICATION: Final = tuple(
    f"{action} {kind}:*"
    for kind in ("topic", "group")
    for action in ("publish", "subscribe", "admin")
)
"""Permissions of the application of a secured cluster, which does not administer the cluster."""

CONTAINERS: Final = "containers"
MARKS: Final = {
    "needs_time": "moves the time of the cluster",
    "needs_faults": "disturbs the cluster",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKS.items():
        config.addinivalue_line("markers", f"{name}(**settings): {text}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        told = os.environ.get("TERNMQ_TEST_CLUSTER")
        metafunc.parametrize("kind", [told] if told else KINDS, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out each test for the kinds that lack what it needs."""
    left_out = [item for item in items if not has_all(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if has_all(item)]


def has_all(item: pytest.Item) -> bool:
    """Return whether the kind of cluster of a test has what the test needs."""
    if not any(mark.name in MARKS for mark in item.iter_markers()):
        return True
    return isinstance(item, pytest.Function) and item.callspec.params["kind"] in IN_PROCESS


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path, Path]]:
    folder = tmp_path_factory.mktemp("secured")
    trusted = authority(folder / "certificates")
    with running_cluster(folder, words_of=partial(tls_words, trusted)) as address:
        users = Users()
        for name in BROKERS:
            users.add(name, "replicate cluster", subjects=(f"CN={name}",))
        users.add("application", *APPLICATION)
        for action in ("publish", "subscribe"):  # tools for dead letters read and send them
            users.allow("root", f"{action} *")
        file = credentials_file(trusted, "application", token_of("application")[0])
        asyncio.run(users.put_at(address, Credentials.from_file(file)))
        yield address, file, credentials_file(trusted, "root", token_of("root")[0])


@pytest.fixture(scope="session")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    # Engines and their client are slow to import, and the other kinds need neither.
    from ternmq.testing.containers import TernMQCluster
    from ternmq_testing.containers.built_image import built_image
    from tests.support.containers import what_is_missing

    if missing := what_is_missing():
        pytest.skip(f"needs Docker: {missing}")
    with (tmp_path_factory.getbasetemp().parent / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the image is built by one of the workers
        built_image()
    with TernMQCluster(brokers=2) as cluster:
        yield cluster.get_nameserver()


@pytest.fixture
def place(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Generator[Place]:
    mark = secrets.token_hex(4)
    topic, group = f"topic_{mark}", f"group_{mark}"
    if kind in IN_PROCESS:
        options: dict[str, Any] = {"brokers": 2, "network": kind}
        for each in request.node.iter_markers():
            options |= each.kwargs if each.name in MARKS else {}
        with (
            BlockingCluster(**options) as cluster,
            cluster.installed(),
        ):
            yield Place(cluster.nameserver, topic, group, None, cluster.asynchronous)
            assert cluster.leaks("clients") == []
    elif kind == "secured":
        address, credentials, operator = request.getfixturevalue("secured")
        monkeypatch.setenv(CREDENTIALS_VARIABLE, str(credentials))
        yield Place(address, topic, group, Credentials.from_file(operator))
    elif kind in ("processes", CONTAINERS):
        yield Place(request.getfixturevalue(kind), topic, group)
    else:
        yield Place(kind, topic, group)
