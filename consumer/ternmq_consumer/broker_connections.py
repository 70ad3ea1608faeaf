"""Connections of a client to brokers: the seam between consumers and clients."""

from typing import Protocol

from ternmq_remoting.rpc import Connection


class ReaderConnections(Protocol):
    """Connections for reading: a `ClientInstance`, or a class of a test."""

    async def reader(self, broker_name: str) -> Connection:
        """Return the connection to a broker's master, or to a slave that replaces it.

        Raises:
            Unreachable: No member of the broker name answers.
        """
        ...


class BrokerConnections(Protocol):
    """Connections by broker name: a `ClientInstance`, or a class of a test."""

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        """Return the connection to a broker and open it if needed.

        Raises:
            Unreachable: No member with this identity answers.
        """
        ...

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        """Drop the failed `connection`. The next request opens a new one."""
        ...
