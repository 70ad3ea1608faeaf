"""Registration of one broker, and its bounds. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.epochs import EPOCH_STORED_MAX
from ternmq_model.errors import RefusedError, invalid
from ternmq_model.route import TopicConfig, check_broker_name, check_cluster, check_topic_config

EXPIRY_MS: Final = 120_000
"""Default silence after which a broker is removed."""

EXPIRY_MS_MIN: Final = 1_000
EXPIRY_MS_MAX: Final = 600_000
"""Longest time that a dead broker stays in routes."""

ENDPOINTS_MAX: Final = 16
INCARNATION_CHARACTERS_MAX: Final = 128
TOPICS_MAX: Final = 65_536
"""Limit on the topics of one broker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerRegistration:
    """Registration of one broker, as the broker sends it."""

    cluster: str
    broker_name: str
    broker_id: int
    endpoints: tuple[Address, ...]
    incarnation: str
    """Random text of the process."""

    epoch: int = 0
    """Number of the master's term."""

    data_version: DataVersion
    topics: tuple[TopicConfig, ...] = ()
    """Topics of the broker; empty when the table has them (`RouteTable.has_topics_of`). Topics with
    rows of an earlier registration are the same objects (`RouteTable.topics_by_row`)."""

    rows: tuple[bytes, ...] = ()
    """Encoded rows of the topics; empty = not known."""

    expiry_ms: int = EXPIRY_MS


def check_registration(registration: BrokerRegistration, known: Mapping[str, TopicConfig]) -> None:
    """Refuse an illegal registration before it changes the table.

    Args:
        registration: Registration of a broker.
        known: Registered topics of the broker by name, which need no check.

    Raises:
        IllegalName: A name is illegal.
        InvalidParameter: Another value is out of bounds.
    """
    check_cluster(registration.cluster)
    check_broker_name(registration.broker_name)
    for value, least, most, what in (
        (registration.broker_id, 0, (1 << 63) - 1, "broker id"),
        (registration.epoch, 0, EPOCH_STORED_MAX, "epoch"),
        (registration.expiry_ms, EXPIRY_MS_MIN, EXPIRY_MS_MAX, "expiry_ms"),
        (len(registration.endpoints), 1, ENDPOINTS_MAX, "number of endpoints"),
        (len(registration.topics), 0, TOPICS_MAX, "number of topics"),
        (len(registration.incarnation), 1, INCARNATION_CHARACTERS_MAX, "length of incarnation"),
    ):
        if not least <= value <= most:
            raise invalid_registration(registration, f"{what} {value}: must be {least} to {most}")
    for endpoint in registration.endpoints:
        if not endpoint.is_legal_endpoint:
            raise invalid_registration(
                registration, f"endpoint {str(endpoint)[:300]!r}: must be a host and a port"
            )
    topics: set[str] = set()
    for config in registration.topics:
        if known.get(config.topic) is not config:
            check_topic_config(config)
        topics.add(config.topic)
    if len(topics) < len(registration.topics):
        raise invalid_registration(registration, "the registration has a topic twice")


def invalid_registration(registration: BrokerRegistration, remark: str) -> RefusedError:
    """Return the refusal of a value outside its bounds, which names the broker."""
    name = f"broker {registration.broker_name}"
    return invalid(f"{name}: {remark}")
