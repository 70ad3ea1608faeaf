"""HTTP port of a process: `/metrics`, `/livez` and `/readyz`.

Threads of its own answer. A scrape collects on the event loop, in slices of 2 ms, and is written as
text in the thread.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Coroutine
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ternmq_model.address import Address
from ternmq_model.errors import CannotListen, ConfigError
from ternmq_runtime.metrics.config import MetricsConfig
from ternmq_runtime.metrics.loop_pause import LOOP_PAUSE, LoopPause
from ternmq_runtime.metrics.scrape import LabelValues, ScrapedFamily, SeriesTable, metrics_text
from ternmq_runtime.timers import LOOP_TIMERS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

T = TypeVar("T")

_SLICE_S: Final = 0.002
_PAUSE_S: Final = 0.001
"""Pause behind a slice: other calls take several rounds of the loop."""

_REQUESTS_MAX: Final = 8
"""Requests that are answered at a time; further connections are closed."""

_SOCKET_TIMEOUT_S: Final = 10.0
_STOPS_WITHIN_S: Final = 0.05
_LIVE_WITHIN_S: Final = 5.0
_SCRAPE_WITHIN_S: Final = 30.0

logger = logging.getLogger(__name__)


class Scrape:
    """One scrape: what the parts of a process add their series to. Owned by the loop."""

    def __init__(self, table: SeriesTable) -> None:
        self._table = table
        self.add: Final = table.add
        self.add_histogram: Final = table.add_histogram
        self._now_s = asyncio.get_running_loop().time
        self._rests_at_s = self._now_s() + _SLICE_S

    async def rest(self) -> None:
        """Let other tasks run if this scrape has kept the loop busy for 2 ms."""
        if self._now_s() >= self._rests_at_s:
            await asyncio.sleep(_PAUSE_S)
            self._rests_at_s = self._now_s() + _SLICE_S


class ScrapedProcess(Protocol):
    """A process whose metrics and readiness the port shows."""

    @property
    def unready(self) -> str:
        """Reason for which it does not serve clients; empty = it does."""
        ...

    @property
    def node(self) -> LabelValues:
        """Values of `NODE_LABELS` of the process."""
        ...

    async def collect(self, scrape: Scrape) -> None:
        """Add the series of its services, with rests. It need not serve."""
        ...


class MetricsPort:
    """Answers of the port. Its scrapes run one after the other, on the loop that made it."""

    def __init__(self, config: MetricsConfig, process: ScrapedProcess) -> None:
        self._process = process
        self._table = SeriesTable(config.series_max)
        self._scraping = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._collectors = _process_collectors(config)
        self.pause: Final = LoopPause(LOOP_TIMERS)

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return a scrape as text, and its media type, by the header Accept. For other threads.

        Raises:
            TimeoutError: The loop did not collect in 30 s.
        """
        from prometheus_client.exposition import choose_encoder

        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is none
            encode, media_type = choose_encoder("")
        scraped = self._run(self._scrape(), _SCRAPE_WITHIN_S)
        text = metrics_text(scraped, is_openmetrics="openmetrics" in media_type)
        # The text of OpenMetrics ends with the line that `encode` writes.
        return text.encode() + encode(self._collectors), media_type

    def live(self) -> str:
        """Return the reason for which the loop is not alive; empty = it is. For other threads."""
        try:
            self._run(asyncio.sleep(0), _LIVE_WITHIN_S)
        except TimeoutError:
            return f"the event loop gave no answer in {_LIVE_WITHIN_S:g} s"
        return ""

    def unready(self) -> str:
        """Return the reason for which the process does not serve clients; empty = it does."""
        return self._process.unready

    async def _scrape(self) -> list[ScrapedFamily]:
        async with self._scraping:
            scrape, node = Scrape(self._table), self._process.node
            scraped: list[ScrapedFamily] = []
            try:
                await self._process.collect(scrape)
                scrape.add_histogram(LOOP_PAUSE, node, self.pause.counts.values())
                for family in self._table.end(node):
                    scraped.append(family)
                    await scrape.rest()
            except BaseException:  # cancelled, too, where it takes too long
                self._table.drop()
                raise
            return scraped

    def _run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise


class _Requests(BaseHTTPRequestHandler):
    """One connection of the port, with one request."""

    timeout = _SOCKET_TIMEOUT_S

    def handle(self) -> None:
        """Answer the request. It must arrive within the time-out, which alone bounds each byte."""
        late = threading.Timer(_SOCKET_TIMEOUT_S, self._end_reading)
        late.daemon = True
        late.start()
        try:
            super().handle()
        finally:
            late.cancel()

    def _end_reading(self) -> None:
        with contextlib.suppress(OSError):  # it is closed by now
            self.connection.shutdown(socket.SHUT_RD)

    def do_GET(self) -> None:
        """Answer a request; HTTP/1.0 closes the connection behind it."""
        assert isinstance(self.server, _HttpServer)
        path, port = self.path.partition("?")[0], self.server.answers
        status, media_type = HTTPStatus.OK, "text/plain; charset=utf-8"
        if path == "/metrics":
            try:
                body, media_type = port.metrics(self.headers.get("Accept", ""))
            except TimeoutError:
                status, body = HTTPStatus.SERVICE_UNAVAILABLE, b"the event loop is busy\n"
            except Exception:
                logger.exception("scrape failed")
                status, body = HTTPStatus.INTERNAL_SERVER_ERROR, b"the log has the reason\n"
        elif path in ("/livez", "/readyz"):
            reason = port.live() or (port.unready() if path == "/readyz" else "")
            status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
            body = f"{reason or 'ok'}\n".encode()
        else:
            status, body = HTTPStatus.NOT_FOUND, b"paths: /metrics /livez /readyz\n"
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log a request as a debug line."""
        logger.debug("request answered address=%s text=%r", self.client_address[0], format % args)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listen: Address, answers: MetricsPort) -> None:
        self.answers = answers
        self._free = threading.BoundedSemaphore(_REQUESTS_MAX)
        self.address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        super().__init__((listen.host, listen.port), _Requests)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("request failed address=%s", client_address[0], exc_info=True)

    def server_bind(self) -> None:
        # The base looks up its own name besides, which may wait for a name server.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


@contextlib.asynccontextmanager
async def metrics_port(
    config: MetricsConfig, process: ScrapedProcess
) -> AsyncGenerator[Address | None]:
    """Open the port while the block runs: around the block of the services.

    Args:
        config: Settings.
        process: Process, whose services need not serve yet: `/readyz` says when they do.

    Yields:
        The address with its real port; None = the settings open no port.

    Raises:
        ConfigError: The extra `metrics` is not installed.
        CannotListen: The address is in use, or of another machine.
    """
    if not config.port:
        yield None
        return
    port = MetricsPort(config, process)
    try:
        listen = Address(config.listen, config.port)
        try:
            server = _HttpServer(listen, port)
        except OSError as error:
            reason = f"{listen}: {error.strerror or error}"
            raise CannotListen(f"metrics.port: cannot listen on {reason}") from error
        serving = threading.Thread(
            target=server.serve_forever, args=(_STOPS_WITHIN_S,), name="metrics-port", daemon=True
        )
        serving.start()
        try:
            yield Address(config.listen, server.server_port)
        finally:
            await asyncio.to_thread(server.shutdown)
            server.server_close()
    finally:
        port.pause.stop()


def _process_collectors(config: MetricsConfig) -> "CollectorRegistry":
    """Return the collectors of the process: CPU, memory, files, garbage, Python's version.

    Raises:
        ConfigError: The extra `metrics` is not installed.
    """
    try:
        from prometheus_client import (
            CollectorRegistry,
            GCCollector,
            PlatformCollector,
            ProcessCollector,
        )
    except ImportError as error:
        rule = "needs `pip install '/path/to/ternmq[metrics]'`"
        raise ConfigError("metrics.port", config.port, rule) from error
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry
