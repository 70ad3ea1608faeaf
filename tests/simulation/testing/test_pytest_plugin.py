"""The plugin of pytest, in sessions of their own."""

import textwrap
from collections.abc import Sequence

import pytest

import ternmq.testing as ternmq_testing

pytest_plugins = ["pytester"]


IMPORTED = ternmq_testing
"""Sessions in this process take it as it is: NumPy cannot be imported twice."""
SENT = """
    async with ternmq.producer("p") as producer:
        await producer.send(Message(ternmq_topic, b"1", deliver_after_ms=3_600_000))
    ternmq.expect(ternmq_topic, count=0)
    await ternmq.advance("1h")
    await ternmq.settled()
    ternmq.expect(ternmq_topic, count=1)
"""


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile("import asyncio, pytest\nfrom ternmq import Message\n" + source)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def body(source: str) -> str:
    return textwrap.indent(textwrap.dedent(source), "    ")


def test_plain_tests_have_a_cluster_each(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.parametrize("number", range(3))
def test_send(ternmq, ternmq_topic, number):
    with ternmq.producer("p") as producer:
        producer.send(Message(ternmq_topic, b"1", deliver_after_ms=3_600_000))
    ternmq.expect(ternmq_topic, count=0)
    ternmq.advance("1h")
    ternmq.expect(ternmq_topic, count=1)
    ternmq.expect("all", count=0)
    with ternmq.producer("p") as producer:
        producer.send(Message("all", b"1"))
""",
        "-p",
        "no:asyncio",
    )
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("mark", "arguments"),
    [
        ("@pytest.mark.asyncio", ("-p", "pytest_asyncio", "-o", "asyncio_mode=strict")),
        ("", ("-p", "pytest_asyncio", "-o", "asyncio_mode=auto")),
        ("@pytest.mark.anyio", ("-p", "no:asyncio")),
    ],
    ids=["asyncio strict", "asyncio auto", "anyio"],
)
def test_asynchronous_tests_use_the_cluster_on_their_own_loop(
    pytester: pytest.Pytester, mark: str, arguments: Sequence[str]
) -> None:
    source = f"""
{mark}
async def test_send(ternmq, ternmq_topic):
{body(SENT)}

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
    is_asyncio = "pytest_asyncio" in arguments
    scope = ("-o", "asyncio_default_fixture_loop_scope=function") if is_asyncio else ()
    run(pytester, source, *arguments, *scope).assert_outcomes(passed=1)


def test_test_that_runs_its_own_loop_uses_the_asynchronous_side(pytester: pytest.Pytester) -> None:
    source = f"""
def test_send(ternmq, ternmq_topic):
    asyncio.run(send(ternmq.asynchronous, ternmq_topic))

async def send(ternmq, ternmq_topic):
{body(SENT)}
"""
    run(pytester, source, "-p", "no:asyncio").assert_outcomes(passed=1)


def test_mark_chooses_the_cluster(pytester: pytest.Pytester) -> None:
    source = """
pytestmark = pytest.mark.ternmq(brokers=3)

@pytest.mark.ternmq(flush="sync")
def test_three(ternmq):
    assert [each.name for each in ternmq.brokers] == ["broker-a", "broker-b", "broker-c"]

@pytest.mark.ternmq(brokers=1)
def test_one(ternmq):
    assert len(ternmq.brokers) == 1

@pytest.mark.ternmq(colour="red")
def test_unknown(ternmq):
    pass
"""
    result = run(pytester, source, "-p", "no:asyncio")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*no setting 'colour' of a broker or a store*"])


def test_mark_without_its_cluster_is_refused(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.ternmq(brokers=2)
def test_shared(ternmq_session):
    pass

@pytest.fixture
def shop(ternmq):
    return ternmq

@pytest.mark.ternmq(brokers=2)
def test_own(shop):
    assert len(shop.brokers) == 2

@pytest.mark.ternmq(brokers=2)
class TestMarked:
    def test_without(self):
        pass

@pytest.mark.ternmq(brokers=2)
def test_asks(request):
    assert len(request.getfixturevalue("ternmq").brokers) == 2
"""
    result = run(pytester, source, "-p", "no:asyncio")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        ["*UsageError: the mark ternmq chooses the cluster of the fixture*"]
    )


def test_failure_reports_what_the_cluster_has(pytester: pytest.Pytester) -> None:
    source = """
def test_fails(ternmq):
    with ternmq.producer("p") as producer:
        producer.send(Message("orders", b"1"))
    ternmq.broker().crash()
    ternmq.broker().restart()
    assert ternmq.lag("g") == 1

def test_shared_fails(ternmq_session):
    with ternmq_session.producer("p") as producer:
        producer.send(Message("of_session", b"1"))
    assert ternmq_session.lag("g") == 1
"""
    result = run(pytester, source, "-p", "no:asyncio")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*TernMQ*", "*broker-a lost its power*"])
    result.stdout.fnmatch_lines(["*TernMQ*", "topic of_session: 1 messages"])


def test_failed_expectation_is_shown_in_the_test_alone(pytester: pytest.Pytester) -> None:
    source = """
def test_plain(ternmq):
    ternmq.expect("orders", count=1)

@pytest.mark.anyio
async def test_asynchronous(ternmq):
    ternmq.expect("orders", count=1)

@pytest.mark.anyio
async def test_settled(ternmq):
    with ternmq.installed():
        ternmq.broker().pause()
        await ternmq.settled(timeout_s=0)

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
    result = run(pytester, source, "-p", "no:asyncio")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["E *AssertionError: expected 1 messages in 'orders', found 0"] * 2)
    for inside in ("blocking_client", "looking.py", "elsewhere.py", "concurrent", "other_loop"):
        result.stdout.no_fnmatch_line(f"*{inside}*")


def test_client_left_open_fails_the_test_unless_it_may(pytester: pytest.Pytester) -> None:
    source = """
def leave(ternmq):
    producer = ternmq.producer("p")
    producer.__enter__()
    kept.append(producer)

kept = []

def test_leaves(ternmq):
    leave(ternmq)

@pytest.mark.ternmq(leaks="ignore")
def test_may_leave(ternmq):
    leave(ternmq)
"""
    result = run(pytester, source, "-p", "no:asyncio")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*left behind: a producer of p is open*"])
    result = run(pytester, source, "-p", "no:asyncio", "-o", "ternmq_leaks=ignore")
    result.assert_outcomes(passed=2)


def test_leaks_of_a_failed_test_are_no_second_failure(pytester: pytest.Pytester) -> None:
    source = """
def test_fails(ternmq):
    kept.append(ternmq.producer("p").__enter__())
    assert False

kept = []
"""
    run(pytester, source, "-p", "no:asyncio").assert_outcomes(failed=1)


def test_messages_without_an_answer_fail_the_test_unless_they_may(
    pytester: pytest.Pytester,
) -> None:
    source = """
@pytest.fixture
def poll(ternmq, ternmq_topic):
    with ternmq.producer("p") as producer:
        producer.send(Message(ternmq_topic, b"1"))
    with ternmq.pull_consumer("g") as consumer:
        consumer.subscribe(ternmq_topic)
        consumer.assigned()
        while not consumer.poll(timeout_s=1):
            pass
        yield consumer

def test_forgets(poll):
    pass

def test_commits(poll):
    poll.commit()

@pytest.mark.ternmq(leaks="clients")
def test_looks(poll):
    pass

@pytest.mark.ternmq(leaks="none")
def test_mistyped(poll):
    pass
"""
    result = run(pytester, source, "-p", "no:asyncio")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(["*left behind: group g took 1 messages of *test_forgets*"])
    result.stdout.fnmatch_lines(["*leaks is 'fail', 'clients' or 'ignore', not 'none'*"])


def test_each_process_of_a_distributed_run_has_clusters_of_its_own(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
from ternmq import Message
import pytest

@pytest.mark.parametrize("number", range(4))
def test_send(ternmq, ternmq_session, ternmq_topic, number):
    with ternmq.producer("p") as producer, ternmq_session.producer("p") as shared:
        producer.send(Message("orders", b"1"))
        shared.send(Message(ternmq_topic, b"1"))
    ternmq.expect("orders", count=1)
    ternmq_session.expect(ternmq_topic, count=1)
""")
    arguments = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-n", "2")
    pytester.runpytest_subprocess(*arguments).assert_outcomes(passed=4)


def test_session_shares_one_cluster_and_topics_have_fresh_names(pytester: pytest.Pytester) -> None:
    source = """
names = []

@pytest.mark.parametrize("number", range(2))
def test_shared(ternmq_session, ternmq_topic, number):
    names.append(ternmq_topic)
    with ternmq_session.producer("p") as producer:
        producer.send(Message("shared", b"1"))
    ternmq_session.expect("shared", count=number + 1)
    assert len(set(names)) == number + 1
"""
    run(pytester, source, "-p", "no:asyncio").assert_outcomes(passed=2)


def test_plugin_imports_nothing_until_a_fixture_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_nothing():\n"
        "    assert not [name for name in sys.modules if name.startswith('ternmq_b')]\n"
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
