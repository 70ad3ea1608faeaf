"""Tables that slaves synchronize from their master, and offsets that a master takes from slaves."""

from ternmq_broker.replication.tables.offset_takeover import take_over_offsets as take_over_offsets
from ternmq_broker.replication.tables.service import MetadataService as MetadataService
from ternmq_broker.replication.tables.synchronizer import MetadataFollower as MetadataFollower
from ternmq_broker.replication.tables.synchronizer import MetadataServices as MetadataServices
