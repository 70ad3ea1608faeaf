"""First request of a send stream. Pure."""

from ternmq_producer.config import ProducerConfig
from ternmq_protos.v1 import messages_pb2 as messages


def open_request(
    config: ProducerConfig, client_id: str, group: str, incarnation: str
) -> messages.SendStreamRequest:
    """Return the request that opens a send stream.

    Args:
        config: Settings of the producer, also for topics that the broker creates.
        client_id: Id of the client.
        group: Name of the producer group.
        incarnation: Identity of the producer, by which its new stream ends its old one.
    """
    auto_create = messages.AutoCreate()
    if config.creates_topics:
        auto_create.template_topic = config.template_topic
        auto_create.queues = config.topic_queues
    return messages.SendStreamRequest(
        open=messages.SendStreamOpen(
            client_id=client_id,
            producer_group=group,
            auto_create=auto_create,
            incarnation=incarnation,
        )
    )
