"""What a consumer's parts need of its client to talk to brokers."""

from typing import Protocol

from ternmq_remoting.rpc import Connection


class Brokers(Protocol):
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
