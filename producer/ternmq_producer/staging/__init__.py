"""Half messages that are staged in numbers, and committed or rolled back together.

A batch job stages its messages, which no consumer can see, and the owner of the batch commits or
rolls back all of them. The broker asks no producer about staged messages: after their time it rolls
them back.
"""

from ternmq_producer.staging.blocking_staging_producer import (
    BlockingStagingProducer as BlockingStagingProducer,
)
from ternmq_producer.staging.staged_messages import StagedMessage as StagedMessage
from ternmq_producer.staging.staged_messages import StagedMessages as StagedMessages
from ternmq_producer.staging.staged_messages import decode_staged as decode_staged
from ternmq_producer.staging.staged_messages import encode_staged as encode_staged
from ternmq_producer.staging.staging_errors import EndFailed as EndFailed
from ternmq_producer.staging.staging_errors import StageFailed as StageFailed
from ternmq_producer.staging.staging_producer import StagingProducer as StagingProducer
