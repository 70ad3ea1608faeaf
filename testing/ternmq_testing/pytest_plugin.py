"""Fixtures of pytest: a cluster for a test, and for a session.

Nothing of TernMQ is imported until a test uses one of them.
"""

import inspect
import itertools
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ternmq_testing.cluster.blocking_cluster import BlockingCluster

_topics = itertools.count(1)
_CLUSTERS = pytest.StashKey[list["BlockingCluster"]]()
_HAS_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of all tests in `pytest.ini` or `pyproject.toml`."""
    text = "what tests with the fixture ternmq may not leave behind: fail, clients or ignore"
    parser.addini("ternmq_leaks", text, default="fail")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "ternmq(brokers=1, flush='async', topics=(), seed=0, leaks='fail', **settings): "
        "the cluster of the fixture `ternmq`",
    )


@pytest.fixture
def ternmq(request: pytest.FixtureRequest) -> Generator[Any]:
    """Return a cluster for one test: a `Cluster` for an async test, else a `BlockingCluster`."""
    options: dict[str, Any] = {"leaks": request.config.getini("ternmq_leaks")}
    for mark in reversed(list(request.node.iter_markers("ternmq"))):
        if mark.args:
            raise pytest.UsageError("the mark ternmq takes names: ternmq(brokers=2)")
        options |= mark.kwargs
    yield from _cluster(request, options)


@pytest.fixture(scope="session")
def ternmq_session(request: pytest.FixtureRequest) -> Generator[Any]:
    """Return the `BlockingCluster` that all tests of this process share."""
    yield from _cluster(request, {"leaks": "ignore"})


@pytest.fixture
def ternmq_topic(request: pytest.FixtureRequest) -> str:
    """Return the name of a topic that no other test has."""
    words = "".join(each if each.isalnum() else "_" for each in request.node.name)
    return f"{words[:80]}_{next(_topics)}"


def _cluster(request: pytest.FixtureRequest, options: dict[str, Any]) -> Generator[Any]:
    from ternmq_testing.cluster.blocking_cluster import BlockingCluster

    leaks = options.pop("leaks")
    with BlockingCluster(**options) as cluster:
        request.node.stash.setdefault(_CLUSTERS, []).append(cluster)
        function = getattr(request, "function", None) if request.scope == "function" else None
        yield cluster.asynchronous if inspect.iscoroutinefunction(function) else cluster
        request.node.stash[_CLUSTERS].remove(cluster)
        # A test that has failed already had no chance to leave in order.
        if not request.node.stash.get(_HAS_FAILED, False) and (found := cluster.leaks(leaks)):
            pytest.fail(f"left behind: {'; '.join(found)}", pytrace=False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check that a marked test has the cluster that the mark chooses.

    Raises:
        pytest.UsageError: The test does not use the fixture `ternmq`.
    """
    item.stash[_HAS_FAILED] = False
    is_marked = any(mark.name == "ternmq" for mark in item.own_markers)
    if not is_marked or "ternmq" in getattr(item, "fixturenames", ()):
        return
    function = getattr(item, "function", None)
    # A test with `request` may ask for any fixture while it runs.
    if function is not None and "request" not in inspect.signature(function).parameters:
        raise pytest.UsageError(
            "the mark ternmq chooses the cluster of the fixture `ternmq`, which the test does not "
            "use; for a shared cluster write a fixture with a BlockingCluster(...)"
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any]:
    """Add to the report of a failed test what its cluster has."""
    outcome = yield
    report = outcome.get_result()
    if report.when != "teardown" and not report.passed:
        item.stash[_HAS_FAILED] = True
    if report.when != "teardown" and report.failed:
        clusters = [each.stash.get(_CLUSTERS, None) or () for each in (item.session, item)]
        for cluster in itertools.chain(*clusters):
            report.sections.append(("TernMQ", cluster.report()))
