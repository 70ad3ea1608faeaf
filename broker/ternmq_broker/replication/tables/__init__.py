"""Tables that slaves synchronize from their master, and offsets that a master takes from slaves."""

from ternmq_broker.replication.tables.following import MetadataFollower as MetadataFollower
from ternmq_broker.replication.tables.following import MetadataServices as MetadataServices
from ternmq_broker.replication.tables.rpc import MetadataService as MetadataService
from ternmq_broker.replication.tables.take_over import take_over_offsets as take_over_offsets
