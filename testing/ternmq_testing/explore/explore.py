"""Exploration of a scenario: many seeds, each with its own schedule and faults."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ternmq_model.arguments import check_function, check_seconds, is_async, is_whole
from ternmq_model.errors import UsageError
from ternmq_runtime.service import collecting_rarely
from ternmq_testing.explore.explored_cluster import ExploredCluster
from ternmq_testing.explore.trouble import FAULTS, check_faults
from ternmq_testing.time.virtual_time import run_in_virtual_time

Scenario = Callable[[ExploredCluster], Awaitable[object]]

_STORE: Final[dict[str, Any]] = {"commit_log_file_bytes": 1 << 20}
"""Smaller files than those of other clusters: a sync copies them, and each seed makes new ones."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """Outcome of one seed."""

    seed: int
    history: str
    """Events with their times, one per line."""

    failure: BaseException | None
    """Error of the scenario, or an `AssertionError` that names the broken promises; None = all is
    well."""


def explore(
    scenario: Scenario,
    *,
    seeds: int | Iterable[int] = 200,
    brokers: int = 2,
    flush: str = "sync",
    topics: Collection[str] = (),
    faults: Collection[str] = FAULTS,
    timeout_s: float = 600.0,
    **settings: Any,
) -> None:
    """Run a scenario under many seeds, each on a cluster of its own, on virtual time.

        async def scenario(cluster):
            async with cluster.producer("shop") as producer:
                with suppress(TernError):
                    await producer.send(Message("orders", b"1"))
            await cluster.settled()
            assert len(cluster.messages("orders")) <= 1

        def test_orders():
            explore(scenario, seeds=200)

    A seed draws latencies, the speed of disks, and faults: brokers that crash and come back, lost
    requests and answers, slow disks, partitions, members that come and go. Faults strike from the
    first send until `cluster.settled()`, or the end of the scenario: what prepares it is
    undisturbed, and assertions belong behind `settled`. Then the promises are checked: nothing
    acknowledged is lost (with `flush="sync"`), messages of one sharding key lie in their order, a
    message of a rolled-back transaction is never visible, and that of a confirmed commit is.

    The first seed that fails ends the exploration. The same seed repeats it.

    Args:
        scenario: `async def` that takes the cluster and uses clients that the cluster makes. It
            must not use threads, sockets or clocks of its own.
        seeds: Number of seeds, from 0 on, or the seeds.
        brokers: Number of brokers.
        flush: `sync`, or `async`: then a power loss may lose acknowledged messages.
        topics: Topics that exist when the scenario begins.
        faults: Names of the faults that may strike; none of them = only schedules differ.
        timeout_s: Longest virtual time of one run, s. Time that the scenario moves by `advance`
            does not count.
        settings: Settings of every broker by their names in `BrokerConfig` and `StoreConfig`.

    Raises:
        AssertionError: A promise was broken, or the scenario did not end in time. The text has the
            seed, and how to repeat it, and the history.
        UsageError: An argument is illegal, or an event loop runs in this thread.
        Exception: The scenario raised it; the seed and the history are its note.
    """
    wanted = _seeds(seeds)
    _check(scenario)
    check_faults(faults)
    if check_seconds("timeout_s", timeout_s) <= 0:
        raise UsageError(f"timeout_s={timeout_s!r}: must be above 0")
    name = getattr(scenario, "__name__", "scenario")
    options: dict[str, Any] = {
        "brokers": brokers,
        "flush": flush,
        "topics": topics,
        "faults": tuple(faults),
    }
    with collecting_rarely():
        for seed in wanted:
            run = explored(scenario, seed, timeout_s=timeout_s, **options, **settings)
            failure = run.failure
            if failure is not None:
                failure.add_note(
                    f"\nseed {seed} failed. Repeat it: explore({name}, seeds=[{seed}]) with the "
                    f"same other arguments.\nIts history, in seconds of virtual time:\n"
                    f"{run.history}"
                )
                raise failure


def explored(scenario: Scenario, seed: int, *, timeout_s: float, **options: Any) -> Exploration:
    """Run a scenario under one seed, on an event loop of its own. See `explore`."""
    cluster = ExploredCluster(seed=seed, **{**_STORE, **options})
    failure: BaseException | None = None
    try:
        run_in_virtual_time(_run(scenario, cluster, timeout_s))
    except Exception as error:
        failure = error
    return Exploration(seed, cluster.history, failure)


async def _run(scenario: Scenario, cluster: ExploredCluster, timeout_s: float) -> None:
    async with cluster:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                await scenario(cluster)
        except TimeoutError:
            if limit.expired():
                raise AssertionError(
                    f"the scenario did not end within {timeout_s:g} s of virtual time"
                ) from None
            raise
        if left := cluster.leaks("clients"):
            raise AssertionError(f"the scenario left behind: {'; '.join(left)}")
        await cluster.settled()
        if broken := cluster.broken_promises():
            raise AssertionError("broken promises:\n" + "\n".join(f"  {each}" for each in broken))


def _seeds(seeds: int | Iterable[int]) -> list[int]:
    given: Any = seeds
    if is_whole(given) and given > 0:
        return list(range(given))
    try:
        found = [] if isinstance(given, str) else list(given)
    except TypeError:
        found = []
    if not found or not all(map(is_whole, found)):
        raise UsageError(f"seeds={seeds!r} must be a number of seeds, or whole numbers: [17]")
    return found


def _check(scenario: Scenario) -> None:
    check_function("scenario", scenario, 1)
    if not is_async(scenario):
        raise UsageError(f"scenario={scenario!r} must be `async def`")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "explore has event loops of its own: call it from a test that is no `async def`"
    )
