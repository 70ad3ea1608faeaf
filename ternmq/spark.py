"""For programs around Spark, beside `format("ternmq")`: the jobs, and a listener for streams.

Needs the extra: `pip install "ternmq[spark]"`.
"""

from ternmq_pipeline.jobs.archive import Archived as Archived
from ternmq_pipeline.jobs.archive import archive as archive
from ternmq_pipeline.jobs.archive import archived_files as archived_files
from ternmq_pipeline.jobs.redrive import redrive as redrive
from ternmq_pipeline.jobs.replay import replay as replay
from ternmq_pipeline.jobs.report import report as report
from ternmq_pipeline.source.streams.metrics import StreamListener as StreamListener
from ternmq_pipeline.source.streams.metrics import StreamReport as StreamReport
from ternmq_runtime.field_docs import describe_fields as _describe_fields

for _kind in (Archived, StreamReport):
    _describe_fields(_kind)
