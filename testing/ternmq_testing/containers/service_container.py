"""One service of TernMQ in a container, at ports that are known before it starts."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Self

from docker.errors import DockerException  # type: ignore[import-untyped]
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from ternmq_model.errors import UsageError
from ternmq_testing.containers.built_image import built_image

NAMESERVER_PORT: Final = 9876
"""Port of a NameServer inside of its container."""

BROKER_PORT_VARIABLE: Final = "TERNMQ_BROKER__PORT"
STARTS_WITHIN_S: Final = 120
_POLL_S: Final = 0.1
_TRIES: Final = 5
_TAKEN: Final = ("already allocated", "already in use", "ports are not available")

_PORTS: Final = range(12_000, 32_000)
"""Below what systems give to who asks for any port: while a broker is down, nobody must get its."""
_chance: Final = Random(os.getpid())


class ServiceContainer(DockerContainer):
    """A container of one service, in the conventions of testcontainers.

    A broker registers its port with the host through which it is reached, so that port is the same
    inside and outside: a free one of this machine, drawn at the start. `with_bind_ports` and the
    variable `TERNMQ_BROKER__PORT` choose fixed ones. They stay the same when the process ends and
    starts again.

    Args:
        image: Name of the image; empty = built from the checkout.
        verb: `dev`, `nameserver` or `broker`.
        waits: False = `start` does not wait until the service serves; `until_serving` does.
        kwargs: Arguments of `DockerContainer`.
    """

    def __init__(self, image: str, verb: str, *, waits: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault("init", True)  # the first process waits for its children
        with engine_needed():
            super().__init__(image, **kwargs)
        self._image_given = bool(image)
        self._has_nameserver = verb != "broker"
        self._has_broker = verb != "nameserver"
        self.with_command(f"{verb} --listen 0.0.0.0 --insecure --data /data")
        self._until_serving = (
            LogMessageWaitStrategy(f"^{'broker' if self._has_broker else 'nameserver'} ")
            .with_startup_timeout(STARTS_WITHIN_S)
            .with_poll_interval(_POLL_S)
        )
        if waits:
            self.waiting_for(self._until_serving)

    def start(self) -> Self:
        """Start the container. See `DockerContainer.start`."""
        if not self._image_given:
            self.image = built_image()
        ports, variables = dict(self.ports), dict(self.env)
        for tries_left in reversed(range(_TRIES)):
            self.ports, self.env = dict(ports), dict(variables)
            self._choose_ports()
            try:
                return super().start()
            except OSError as error:  # as the engine's refusals are
                if not tries_left or not any(each in str(error).lower() for each in _TAKEN):
                    raise
                if self._container is not None:
                    self._container.remove(force=True, v=True)
        raise AssertionError("the last try returns or raises")

    def until_serving(self) -> None:
        """Wait until the service of the started container serves.

        Raises:
            TimeoutError: The service does not serve within 120 s; the text has the end of its log.
            RuntimeError: The service has ended.
        """
        self._until_serving.wait_until_ready(self)

    def _choose_ports(self) -> None:
        if self._has_nameserver and f"{NAMESERVER_PORT}" not in self.ports:
            self.with_bind_ports(NAMESERVER_PORT, _free_port())
        if self._has_broker:
            port = int(self.env.get(BROKER_PORT_VARIABLE) or _free_port())
            self.with_env(BROKER_PORT_VARIABLE, f"{port}")
            self.with_bind_ports(port, port)
            if not self._has_nameserver:
                self.with_env("TERNMQ_HEALTH", f"127.0.0.1:{port}")


@contextmanager
def engine_needed() -> Generator[None]:
    """Let errors of the block about a missing Docker engine say so.

    Raises:
        UsageError: No engine answers.
    """
    try:
        yield
    except DockerException as error:
        raise UsageError(
            f"the Docker engine does not answer: start it, or name it in DOCKER_HOST ({error})"
        ) from error


def _free_port() -> int:
    """Return a port of this machine on which nobody listens. Another process may take it first."""
    while True:
        port = _chance.choice(_PORTS)
        try:
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            continue
        return port
