"""Test cases of unittest that have a cluster, and a cluster in a doctest."""

import doctest
import io
import unittest
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from ternmq import BlockingProducer, Message, Producer
from ternmq.testing import BlockingCluster, Cluster
from ternmq_model.errors import UsageError
from ternmq_testing.cluster import blocking_cluster
from ternmq_testing.unittest_case import AsyncClusterTestCase, ClusterTestCase


def run(case: type[unittest.TestCase]) -> tuple[unittest.TestResult, str]:
    """Run the tests of a case, and return the result and what was printed."""
    printed = io.StringIO()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    return unittest.TextTestRunner(printed).run(suite), printed.getvalue()


def test_each_test_has_a_cluster_of_its_own() -> None:
    class Case(ClusterTestCase):
        brokers = 2
        settings: ClassVar[Mapping[str, Any]] = {"transaction_checks_max": 3}

        def send(self) -> None:
            with self.cluster.producer("p") as producer:
                producer.send(Message("orders", b"1", deliver_after_ms=3_600_000))
            self.cluster.advance("1h")
            self.cluster.expect("orders", count=1)

        test_one = send
        test_other = send

        def test_cluster_is_as_told(self) -> None:
            assert [each.name for each in self.cluster.brokers] == ["broker-a", "broker-b"]

    result, printed = run(Case)
    assert (result.testsRun, result.wasSuccessful()) == (3, True), printed


def test_asynchronous_test_has_the_cluster_on_its_loop() -> None:
    class Case(AsyncClusterTestCase):
        async def test_send(self) -> None:
            assert isinstance(self.cluster, Cluster)
            async with self.cluster.producer("p") as producer:
                await producer.send(Message("orders", b"1", deliver_after_ms=3_600_000))
            await self.cluster.advance("1h")
            self.cluster.expect("orders", count=1)

        def test_plain_method_sees_it_too(self) -> None:
            assert self.cluster.messages("orders") == []

    result, printed = run(Case)
    assert (result.testsRun, result.wasSuccessful()) == (2, True), printed


def test_failure_has_the_report_of_the_cluster() -> None:
    class Case(ClusterTestCase):
        def test_fails(self) -> None:
            with self.cluster.producer("p") as producer:
                producer.send(Message("orders", b"1"))
            self.fail("bad luck")

        def test_part_fails(self) -> None:
            with self.subTest("part", number=7):
                raise ValueError("bad luck")

    class AsyncCase(AsyncClusterTestCase):
        async def test_fails(self) -> None:
            async with self.cluster.producer("p") as producer:
                await producer.send(Message("orders", b"1"))
            self.fail("bad luck")

    result, printed = run(Case)
    assert (len(result.failures), len(result.errors)) == (1, 1)
    assert "topic orders: 1 messages" in result.failures[0][1]
    assert "number=7" in printed
    assert "broker-a serves" in result.errors[0][1]
    result, printed = run(AsyncCase)
    assert len(result.failures) == 1
    assert "topic orders: 1 messages" in printed


def test_client_that_is_left_open_fails_its_test_unless_that_is_allowed() -> None:
    class Case(ClusterTestCase):
        def test_leaves_a_producer(self) -> None:
            producer = self.cluster.producer("p")
            producer.__enter__()
            type(self).left.append(producer)

        left: ClassVar[list[BlockingProducer]] = []

    class Allowed(Case):
        leaks = "ignore"

    class AsyncCase(AsyncClusterTestCase):
        async def test_leaves_a_producer(self) -> None:
            await self.cluster.producer("p").__aenter__()

    class ClosedByCleanup(AsyncClusterTestCase):
        async def test_has_a_producer_until_its_end(self) -> None:
            await self.enterAsyncContext(self.cluster.producer("p"))

    for case in (Case, AsyncCase):
        result, printed = run(case)
        assert len(result.failures) == 1
        assert "left behind: a producer of p is open" in printed
    result, printed = run(Allowed)
    assert result.wasSuccessful(), printed
    for producer in Case.left:
        producer.__exit__(None, None, None)
    result, printed = run(ClosedByCleanup)
    assert result.wasSuccessful(), printed


def test_clients_of_the_application_reach_an_installed_cluster() -> None:
    class Case(ClusterTestCase):
        is_installed = True

        def test_send(self) -> None:
            with BlockingProducer("p", nameserver="mq.example.com:9876") as producer:
                producer.send(Message("orders", b"1"))
            self.cluster.expect("orders", count=1)

    class AsyncCase(AsyncClusterTestCase):
        is_installed = True

        async def test_send(self) -> None:
            async with Producer("p", nameserver="mq.example.com:9876") as producer:
                await producer.send(Message("orders", b"1"))
            self.cluster.expect("orders", count=1)

    for case in (Case, AsyncCase):
        result, printed = run(case)
        assert result.wasSuccessful(), printed


def test_mistakes_in_a_class_are_told() -> None:
    for name, value, near in (
        ("broker", 2, "brokers"),
        ("seeds", 3, "seed"),
        ("installed", True, "is_installed"),
    ):
        with pytest.raises(UsageError, match=rf"Case\.{name}: did you mean '{near}'"):
            type("Case", (ClusterTestCase,), {name: value})
    type("Case", (ClusterTestCase,), {"topic": "orders"})

    class Forgetful(ClusterTestCase):
        def setUp(self) -> None: ...

        def test_send(self) -> None:
            self.cluster.expect("orders", count=0)

    result, printed = run(Forgetful)
    assert len(result.errors) == 1
    assert "no attribute 'cluster': a `setUp` or `asyncSetUp` calls that of `super()`" in printed


def test_skips_and_expected_failures_stay_what_they_are() -> None:
    class Case(ClusterTestCase):
        def test_skips_itself(self) -> None:
            self.skipTest("not today")

        @unittest.skip("never")
        def test_method_is_skipped(self) -> None:
            raise AssertionError

        @unittest.expectedFailure
        def test_fails_as_expected(self) -> None:
            self.fail("as expected")

    result, printed = run(Case)
    assert (len(result.skipped), len(result.expectedFailures)) == (2, 1), printed
    assert result.wasSuccessful()


def test_doctest_of_the_blocking_cluster_holds() -> None:
    (found,) = doctest.DocTestFinder(recurse=False).find(
        BlockingCluster, "BlockingCluster", module=blocking_cluster, globs={}
    )
    assert found.examples
    assert doctest.DocTestRunner().run(found).failed == 0
