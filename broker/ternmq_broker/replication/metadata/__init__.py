"""How a slave keeps its master's tables, and a master that returns takes what its slaves have."""

from ternmq_broker.replication.metadata.following import MetadataFollower as MetadataFollower
from ternmq_broker.replication.metadata.following import MetadataServices as MetadataServices
from ternmq_broker.replication.metadata.rpc import MetadataService as MetadataService
from ternmq_broker.replication.metadata.take_over import take_over_offsets as take_over_offsets
