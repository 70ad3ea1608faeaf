"""Answers of the port for metrics and health, over HTTP."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import CannotListen, ConfigError
from ternmq_runtime.metrics import port as port_module
from ternmq_runtime.metrics.config import MetricsConfig
from ternmq_runtime.metrics.families import MetricFamily, MetricKind
from ternmq_runtime.metrics.port import Scrape, metrics_port
from tests.support.metrics_text import answer_of, parsed

TOPICS = MetricFamily(name="topics", kind=MetricKind.GAUGE, help="Topics.")


class Process:
    """A process with one series."""

    node = ("c", "broker", "b")

    def __init__(self) -> None:
        self.unready = ""
        self.error: Exception | None = None

    async def collect(self, scrape: Scrape) -> None:
        scrape.add(TOPICS, self.node, 3)
        await scrape.rest()
        if self.error is not None:
            raise self.error


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def opened(process: Process) -> AsyncGenerator[Address]:
    async with metrics_port(MetricsConfig(port=free_port()), process) as address:
        assert address is not None
        yield address


async def get(address: Address, path: str, accept: str = "") -> tuple[int, str]:
    return await asyncio.to_thread(answer_of, f"http://{address}{path}", accept, timeout_s=20)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_scrape_has_the_series_of_the_services_and_of_the_process(accept: str) -> None:
    async def main() -> None:
        async with opened(Process()) as address:
            for _ in range(2):
                status, text = await get(address, "/metrics", accept)
                assert status == 200
                found = {each.name: each for each in parsed(text, is_openmetrics=bool(accept))}
                assert found["topics"].value == 3
                assert found["topics"].labels["node_id"] == "b"
                assert {"ternmq_loop_pause_seconds_count", "python_info"} <= found.keys()

    asyncio.run(main())


def test_failed_scrape_leaves_nothing_to_the_next_one() -> None:
    async def main() -> None:
        process = Process()
        async with opened(process) as address:
            process.error = RuntimeError("a fault")
            status, _ = await get(address, "/metrics")
            assert status == 500
            process.error = None
            _, text = await get(address, "/metrics")
            assert text.count("\ntopics{") == 1

    asyncio.run(main())


def test_process_is_ready_when_its_services_serve() -> None:
    async def main() -> None:
        process = Process()
        process.unready = "the broker waits"
        async with opened(process) as address:
            assert await get(address, "/livez") == (200, "ok\n")
            assert await get(address, "/readyz") == (503, "the broker waits\n")
            process.unready = ""
            assert await get(address, "/readyz") == (200, "ok\n")
            assert (await get(address, "/other"))[0] == 404

    asyncio.run(main())


def test_process_whose_loop_hangs_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(port_module, "_LIVE_WITHIN_S", 0.2)
        answers: list[tuple[int, str]] = []
        async with opened(Process()) as address:
            asking = threading.Thread(
                target=lambda: answers.append(asyncio.run(get(address, "/livez"))), daemon=True
            )
            asking.start()
            asking.join(5)  # the loop hangs meanwhile
        assert answers == [(503, "the event loop gave no answer in 0.2 s\n")]

    asyncio.run(main())


def test_connections_above_the_limit_are_closed() -> None:
    async def main() -> None:
        async with opened(Process()) as address:
            waiting = [socket.create_connection((address.host, address.port)) for _ in range(8)]
            try:
                closed: OSError | None = None
                for _ in range(500):  # the port may not have taken the last of them yet
                    try:
                        await get(address, "/livez")
                    except OSError as error:
                        closed = error
                        break
                assert closed is not None
            finally:
                for each in waiting:
                    each.close()
            for _ in range(200):
                with contextlib.suppress(OSError):
                    if await get(address, "/livez") == (200, "ok\n"):
                        break
                await asyncio.sleep(0.02)
            else:
                pytest.fail("the port answers no more")

    asyncio.run(main())


def test_request_that_arrives_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(port_module, "_SOCKET_TIMEOUT_S", 0.5)
        async with opened(Process()) as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"GET /livez HTTP/1.1\r\n")
            answer = asyncio.create_task(reader.read())
            while not answer.done():
                writer.write(b"x")
                await asyncio.sleep(0.1)
            writer.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_accept_header_that_is_none_gets_the_usual_text() -> None:
    async def main() -> None:
        async with opened(Process()) as address:
            status, text = await get(address, "/metrics", "application/openmetrics-text;version=z")
            assert status == 200
            assert not text.endswith("# EOF\n")

    asyncio.run(main())


def test_host_that_no_resolver_knows_is_named() -> None:
    config = MetricsConfig(port=1, listen="no such host")
    with pytest.raises(CannotListen, match=r"no such host:1: (?!Unknown error)"):
        asyncio.run(open_port(config))


def test_taken_port_and_missing_extra_name_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            config = MetricsConfig(port=taken.getsockname()[1])
            with pytest.raises(CannotListen, match=r"metrics\.port: cannot listen on 127.0.0.1:"):
                await open_port(config)
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(ConfigError, match=r"metrics\.port.*ternmq\[metrics\]"):
            await open_port(MetricsConfig(port=1))

    asyncio.run(main())


async def open_port(config: MetricsConfig) -> Any:
    async with metrics_port(config, Process()) as address:
        return address


def test_port_opens_again_right_after_its_last_answer() -> None:
    async def main() -> None:
        config = MetricsConfig(port=free_port())
        for _ in range(2):
            async with metrics_port(config, Process()) as address:
                assert address is not None
                assert await get(address, "/livez") == (200, "ok\n")

    asyncio.run(main())


def test_port_stays_closed_without_its_setting() -> None:
    async def main() -> None:
        assert await open_port(MetricsConfig()) is None

    asyncio.run(main())
