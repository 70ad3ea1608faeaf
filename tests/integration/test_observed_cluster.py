"""Every expression of boards and rules, at a real Prometheus that scrapes a cluster with load."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from ternmq import (
    ConsumeFrom,
    ConsumeStatus,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    Resolution,
    StoredMessage,
    TransactionProducer,
)
from ternmq_console.generate.alert_rules import AlertThresholds, alert_rules, rules_text
from ternmq_console.generate.boards import BOARDS
from tests.support.processes import (
    SMALL,
    eventually,
    free_port,
    run_ternmq,
    running_broker,
    running_nameserver,
)
from tests.support.prometheus import Prometheus, running_prometheus

RULES: Final = alert_rules(AlertThresholds(), "ternmq")
VALUES: Final = {"__rate_interval": "15s"}
"""Values of variables of boards; the others match everything."""

ONLY_IN_TROUBLE: Final = {
    "ternmq_metrics_hidden_series": "ternmq_broker_is_master",
    "ternmq_nameserver_without_master": "ternmq_broker_is_master",
    'absent(up{job="ternmq"})': 'absent(up{job="none"})',
}
"""Vectors that are empty while all is well, and others that are not, to try their expressions."""

CHECKED_SOON: Final = (
    "broker.transaction_timeout_ms=1000",
    "broker.transaction_check_interval_ms=1000",
    "broker.transaction_checks_max=1000",
)
FIRST: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def expressions() -> dict[str, str]:
    """Return every expression of a board, and the watched value of each rule, by where it is.

    A number that stands in for no data is left out.
    """
    found = {
        f"{board.name}: {panel.title}: {legend}": re.sub(
            r"\$(\w+)", lambda name: VALUES.get(name[1], ".*"), query
        ).removesuffix(" or vector(0)")
        for board in BOARDS
        for panel in board.panels
        for legend, query in panel.queries.items()
    }
    return found | {rule.name: rule.value for rule in RULES}


def without_data(prometheus: Prometheus, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return those of the expressions that have no sample."""
    return {place: text for place, text in wanted.items() if not prometheus.query(text)}


def config_file(folder: Path, targets: list[str]) -> Path:
    """Write a configuration of Prometheus that scrapes `targets` and evaluates all rules."""
    (folder / "rules.yaml").write_text(rules_text(RULES, "https://wiki"))
    file = folder / "prometheus.yml"
    job = {"job_name": "ternmq", "static_configs": [{"targets": targets}]}
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    file.write_text(
        json.dumps({"global": often, "rule_files": ["rules.yaml"], "scrape_configs": [job]})
    )
    return file


@asynccontextmanager
async def load(nameserver: str) -> AsyncGenerator[None]:
    """Send and consume messages of all kinds; some hang, fail, or wait for a decision."""
    released = asyncio.Event()

    async def decide(message: Message, resolution: Resolution) -> Resolution:
        return resolution

    async def check(message: StoredMessage) -> Resolution:
        return Resolution.UNKNOWN

    async def take(message: StoredMessage) -> ConsumeStatus:
        if message.body == b"hangs":
            await released.wait()
        return ConsumeStatus.DEAD_LETTER if message.body == b"fails" else ConsumeStatus.SUCCESS

    async def send(producer: Producer, payers: TransactionProducer) -> None:
        for number in itertools.count():
            await producer.send(Message("orders", b"%d" % number))
            await producer.send(Message("orders", b"fails"))
            await producer.send(Message("orders", b"late", deliver_after_ms=500))
            for resolution in (Resolution.COMMIT, Resolution.ROLLBACK):
                await payers.send(Message("orders", b"paid"), resolution)
            await asyncio.sleep(0.1)

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("shop", nameserver=nameserver))
        payers = TransactionProducer(
            "payers", execute=decide, check=check, topics=["orders"], nameserver=nameserver
        )
        await stack.enter_async_context(payers)
        consumer = PushConsumer(
            "shop", "orders", listener=take, nameserver=nameserver, config=FIRST
        )
        await stack.enter_async_context(consumer)
        await producer.send(Message("orders", b"hangs"))
        await producer.send(Message("orders", b"tomorrow", deliver_after_ms=86_400_000))
        await payers.send(Message("orders", b"undecided"), Resolution.UNKNOWN)
        sending = asyncio.create_task(send(producer, payers))
        try:
            yield
        finally:
            sending.cancel()
            released.set()
            await asyncio.gather(sending, return_exceptions=True)


def test_expressions_have_data_while_a_cluster_works_and_alerts_when_it_fails(
    tmp_path: Path,
) -> None:
    ports = {name: free_port() for name in ("names", "broker-a", "slave")}

    def metrics(name: str) -> tuple[object, ...]:
        return ("--metrics-port", ports[name])

    async def main(prometheus: Prometheus, nameserver: str) -> None:
        wanted = expressions()
        missing: dict[str, str] = {}

        async def have_data() -> bool:
            nonlocal missing
            missing = await asyncio.to_thread(without_data, prometheus, wanted)
            return not missing

        troubles: list[str] = []
        for empty, existing in ONLY_IN_TROUBLE.items():
            for place, text in wanted.items():
                if empty in text:
                    troubles.append(text)
                    wanted[place] = text.replace(empty, existing)
        assert len(troubles) == 5
        async with load(nameserver):
            assert await eventually(have_data), json.dumps(missing, indent=1)
            for text in troubles:
                assert not prometheus.query(text), text
            assert prometheus.broken_rules() == {}

    with ExitStack() as stack:
        names = stack.enter_context(running_nameserver(tmp_path / "names", *metrics("names")))
        settings = (*SMALL, *CHECKED_SOON)
        master = running_broker(
            tmp_path / "broker-a", names.nameserver, *metrics("broker-a"), settings=settings
        )
        stack.enter_context(master)
        slave = ("--name", "broker-a", "--broker-id", "1", *metrics("slave"))
        stack.enter_context(
            running_broker(tmp_path / "slave", names.nameserver, *slave, settings=settings)
        )
        run_ternmq("topic", "create", "orders", "--nameserver", names.nameserver)
        targets = [f"127.0.0.1:{port}" for port in ports.values()]
        config = config_file(tmp_path, targets)
        prometheus = stack.enter_context(running_prometheus(tmp_path / "prometheus", config))
        assert asyncio.run(eventually(prometheus.is_ready))
        asyncio.run(main(prometheus, names.nameserver))
        master.end()
        awaited = {"TernMQProcessDown", "TernMQNoMaster"}
        assert asyncio.run(eventually(lambda: awaited <= prometheus.alerts().keys()))
