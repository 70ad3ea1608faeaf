"""Plans of reads: offsets, offset ranges, partitions, admission control and data loss."""

from ternmq_pipeline.planning.admission import AdmittedOffsets as AdmittedOffsets
from ternmq_pipeline.planning.admission import MeasureRanges as MeasureRanges
from ternmq_pipeline.planning.admission import RangeSize as RangeSize
from ternmq_pipeline.planning.admission import TriggerState as TriggerState
from ternmq_pipeline.planning.admission import admit as admit
from ternmq_pipeline.planning.admission import targets_of as targets_of
from ternmq_pipeline.planning.data_loss import DataLost as DataLost
from ternmq_pipeline.planning.data_loss import QueueLoss as QueueLoss
from ternmq_pipeline.planning.data_loss import ReplacedQueues as ReplacedQueues
from ternmq_pipeline.planning.data_loss import replaced as replaced
from ternmq_pipeline.planning.offset_ranges import PlannedRanges as PlannedRanges
from ternmq_pipeline.planning.offset_ranges import offset_ranges as offset_ranges
from ternmq_pipeline.planning.offset_ranges import split as split
from ternmq_pipeline.planning.offset_resolution import ResolvedOffsets as ResolvedOffsets
from ternmq_pipeline.planning.offset_resolution import ending_offsets as ending_offsets
from ternmq_pipeline.planning.offset_resolution import refuse_backwards as refuse_backwards
from ternmq_pipeline.planning.offset_resolution import refuse_missing as refuse_missing
from ternmq_pipeline.planning.offset_resolution import starting_offsets as starting_offsets
from ternmq_pipeline.planning.offset_resolution import times_of as times_of
from ternmq_pipeline.planning.partition_numbers import (
    check_partition_numbers as check_partition_numbers,
)
from ternmq_pipeline.planning.partition_numbers import partition_number as partition_number
from ternmq_pipeline.planning.snapshot import ClusterSnapshot as ClusterSnapshot
