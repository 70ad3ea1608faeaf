"""The options of the source and the sink: read, checked, refused by name."""

from ternmq_pipeline.options.positions import AtOffsets as AtOffsets
from ternmq_pipeline.options.positions import AtTime as AtTime
from ternmq_pipeline.options.positions import AtTimes as AtTimes
from ternmq_pipeline.options.positions import Position as Position
from ternmq_pipeline.options.positions import QueueEnd as QueueEnd
from ternmq_pipeline.options.positions import TimeStrategy as TimeStrategy
from ternmq_pipeline.options.sink_options import WRITE_OPTIONS as WRITE_OPTIONS
from ternmq_pipeline.options.sink_options import WriteOptions as WriteOptions
from ternmq_pipeline.options.sink_options import write_options as write_options
from ternmq_pipeline.options.sink_options import written_topic as written_topic
from ternmq_pipeline.options.source_options import READ_OPTIONS as READ_OPTIONS
from ternmq_pipeline.options.source_options import CommitMode as CommitMode
from ternmq_pipeline.options.source_options import PushdownMode as PushdownMode
from ternmq_pipeline.options.source_options import ReadOptions as ReadOptions
from ternmq_pipeline.options.source_options import ScanMode as ScanMode
from ternmq_pipeline.options.source_options import TriggerLimits as TriggerLimits
from ternmq_pipeline.options.source_options import View as View
from ternmq_pipeline.options.source_options import read_options as read_options
from ternmq_pipeline.options.topics import Assign as Assign
from ternmq_pipeline.options.topics import Subscribe as Subscribe
from ternmq_pipeline.options.topics import SubscribePattern as SubscribePattern
from ternmq_pipeline.options.topics import TopicChoice as TopicChoice
from ternmq_pipeline.options.topics import chosen_topics as chosen_topics
