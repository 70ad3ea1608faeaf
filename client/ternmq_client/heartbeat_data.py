"""Groups of a client, which brokers learn from its hello and its heartbeats."""

from ternmq_protos.v1 import groups_pb2 as groups


class HeartbeatData:
    """Groups of one client, in every heartbeat. Owned by `BrokerSessions`."""

    def __init__(self) -> None:
        self.producers: set[str] = set()
        self.consumers: dict[str, groups.ConsumerGroup] = {}

    def hello(self, client_id: str, incarnation: str) -> groups.SessionRequest:
        """Return the first message of a stream."""
        hello = groups.Hello(
            client_id=client_id,
            incarnation=incarnation,
            producer_groups=sorted(self.producers),
            consumer_groups=self.consumers.values(),
        )
        return groups.SessionRequest(hello=hello)

    def heartbeat(self) -> groups.SessionRequest:
        """Return a heartbeat."""
        heartbeat = groups.Heartbeat(
            producer_groups=sorted(self.producers), consumer_groups=self.consumers.values()
        )
        return groups.SessionRequest(heartbeat=heartbeat)
