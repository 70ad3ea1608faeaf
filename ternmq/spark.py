"""For programs around Spark, beside `format("ternmq")`: the jobs, a listener, threads' sessions.

Needs the extra `spark`, but for `archived_files`, which reads the log of an archive alone. Without
PySpark `StreamListener` and `StreamReport` raise `MissingPackage`, an `ImportError`, when they are
asked for, with `hasattr` too.
"""

from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING, Any

from ternmq_pipeline.jobs.archive import Archived as Archived
from ternmq_pipeline.jobs.archive import archive as archive
from ternmq_pipeline.jobs.archive import archived_files as archived_files
from ternmq_pipeline.jobs.driver.requirements import need
from ternmq_pipeline.jobs.driver.spark_session import set_active_session as set_active_session
from ternmq_pipeline.jobs.redrive import redrive as redrive
from ternmq_pipeline.jobs.replay import replay as replay
from ternmq_pipeline.jobs.report import report as report
from ternmq_runtime.settings.field_docs import describe_fields as _describe_fields

if TYPE_CHECKING:
    from ternmq_pipeline.source.streams.stream_listener import StreamListener as StreamListener
    from ternmq_pipeline.source.streams.stream_listener import StreamReport as StreamReport


__all__ = [
    "Archived",
    "archive",
    "archived_files",
    "redrive",
    "replay",
    "report",
    "set_active_session",
]
if _find_spec("pyspark"):
    __all__ += ["StreamListener", "StreamReport"]


def __getattr__(name: str) -> Any:
    """Import what is derived from PySpark's classes when it is asked for."""
    if name not in ("StreamListener", "StreamReport"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need(f"ternmq.spark.{name}", "pyspark")
    from ternmq_pipeline.source.streams import stream_listener

    _describe_fields(stream_listener.StreamReport)
    return getattr(stream_listener, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_describe_fields(Archived)
