"""The broker: takes messages, keeps them, hands them out."""

from ternmq_broker.config import BrokerConfig as BrokerConfig
from ternmq_broker.server import Broker as Broker
