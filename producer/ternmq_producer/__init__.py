"""Sending messages."""

from ternmq_producer.batch.bulk import SendResults as SendResults
from ternmq_producer.blocking_producer import BlockingProducer as BlockingProducer
from ternmq_producer.blocking_producer import (
    BlockingTransactionProducer as BlockingTransactionProducer,
)
from ternmq_producer.config import ProducerConfig as ProducerConfig
from ternmq_producer.producer import Producer as Producer
from ternmq_producer.queue_selection.selectors import QueueSelector as QueueSelector
from ternmq_producer.transactions.transaction_producer import (
    TransactionProducer as TransactionProducer,
)
