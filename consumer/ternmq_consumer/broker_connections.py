"""Connections to brokers, as a consumer needs them of its client: the seam."""

from typing import Protocol

from ternmq_remoting.rpc import Connection


class ReaderConnections(Protocol):
    """Connections for reading: a `ClientInstance`, or a test's own."""

    async def reader(self, broker_name: str) -> Connection:
        """Return the connection to a broker's master, or to a slave that stands in for it.

        Raises:
            Unreachable: No member of it answers.
        """
        ...


class BrokerConnections(Protocol):
    """Connections by broker name: a `ClientInstance`, or a test's own."""

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        """Return the connection to a broker, dialling it at need.

        Raises:
            Unreachable: Nobody who proves to be it answers.
        """
        ...

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        """Dial the broker anew next time, since `connection` has failed."""
        ...
