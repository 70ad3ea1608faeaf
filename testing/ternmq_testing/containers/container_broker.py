"""A broker in a container, which a test stops, kills and pauses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ternmq_model.errors import UsageError
from ternmq_testing.containers.service_container import ServiceContainer

_LEAVES_WITHIN_S: Final = 30

_IN_PROCESS_ALONE: Final = frozenset(
    {"advance", "freeze", "drop_answers", "partition", "refuse", "disk_full"}
)
"""Methods of `Cluster` and its brokers that need them in the process of the test."""


def no_attribute(owner: object, name: str) -> AttributeError:
    """Return the error of a missing attribute. It tells what only a cluster in this process has."""
    if name in _IN_PROCESS_ALONE:
        return AttributeError(
            f"containers have no {name!r}: time is the machine's, and faults are those of whole"
            " containers; ternmq.testing.Cluster has it"
        )
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")


class ContainerBroker:
    """One broker of a cluster in containers.

    Attributes:
        name: Name in the cluster: `broker-a`, or `broker-a-1` for its slave with the id 1.
        broker_name: Name of the broker, which a master and its slaves share.
        broker_id: 0 for the master.
        container: Container of the broker alone, or of a NameServer too.
    """

    def __init__(
        self,
        broker_name: str,
        broker_id: int,
        container: ServiceContainer,
        until_serving: Callable[["ContainerBroker"], None],
    ) -> None:
        self.name = f"{broker_name}-{broker_id}" if broker_id else broker_name
        self.broker_name, self.broker_id = broker_name, broker_id
        self.container = container
        self._until_serving = until_serving

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuse what containers cannot do."""
            raise no_attribute(self, name)

    @property
    def is_running(self) -> bool:
        """The process runs, or is paused."""
        return self._status in ("running", "paused")

    def start(self) -> None:
        """Start the broker again, and return when it serves."""
        if self.is_running:
            raise UsageError(f"broker {self.name} runs")
        self._wrapped.start()
        self._until_serving(self)

    def stop(self) -> None:
        """Let the broker leave in order. Its disk keeps everything."""
        self._check_running()
        self.resume()
        self._wrapped.stop(timeout=_LEAVES_WITHIN_S)

    def crash(self) -> None:
        """End the broker at once, as `kill -9` does: its disk keeps all that was written.

        Test with it that code survives the loss of a broker: sends go to other brokers, or fail
        with an error.
        """
        self._check_running()
        self._wrapped.kill()
        self._wrapped.wait()

    def restart(self) -> None:
        """Start the broker again after `stop` or `crash`; a running one stops before."""
        if self.is_running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Answer nothing until `resume`: the processes of the container stand still."""
        self._check_running()
        if self._status != "paused":
            self._wrapped.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._status == "paused":
            self._wrapped.unpause()

    def heal(self) -> None:
        """End a pause. A crashed broker stays down."""
        self.resume()

    @property
    def _wrapped(self) -> Any:
        return self.container.get_wrapped_container()

    @property
    def _status(self) -> str:
        self.container.reload()
        return str(self.container.status)

    def _check_running(self) -> None:
        if not self.is_running:
            raise UsageError(f"broker {self.name} does not run")
