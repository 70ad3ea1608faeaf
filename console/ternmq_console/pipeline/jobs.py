"""`ternmq pipeline archive|replay|redrive`: topics to and from files, with Spark."""

import logging
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, TypeVar

import click

from ternmq_client import retry_timeout
from ternmq_client.retry_timeout import RETRY_TIMEOUT_S
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import TIME_HELP, cluster_options, duration_ms, time_ms, time_option
from ternmq_console.cli.output import print_line, print_record
from ternmq_pipeline.jobs.archive import BATCH_ROWS as ARCHIVE_ROWS
from ternmq_pipeline.jobs.archive import FILE_BYTES, FILE_BYTES_MAX, Archived
from ternmq_pipeline.jobs.archive import archive as archive_topics
from ternmq_pipeline.jobs.driver.batch_progress import BatchProgress
from ternmq_pipeline.jobs.driver.spark_session import LOCAL
from ternmq_pipeline.jobs.job_options import START_POSITIONS
from ternmq_pipeline.jobs.redrive import redrive as redrive_letters
from ternmq_pipeline.jobs.replay import replay as replay_messages
from ternmq_pipeline.jobs.resend import BATCH_ROWS, ResendResult

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED: Final = 130
"""Exit code in a shell of a process that Ctrl-C ended."""


def duration_s(text: str) -> float:
    """Return the seconds of a duration such as 90s or 2m."""
    return duration_ms(text) / 1000


def setting(text: str) -> tuple[str, str]:
    """Return name and value of a Spark setting written as `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise click.BadParameter(f"{text!r} is no setting such as spark.driver.memory=4g")
    return name, value


def start(text: str) -> str:
    """Return the job's text of a start: an end of the topic, or Unix milliseconds."""
    return text if text in START_POSITIONS else str(time_ms(text))


_BYTES_UNITS: Final = ("", "KiB", "MiB", "GiB", "TiB")
_BYTES: Final = re.compile(f"([0-9]{{1,13}})({'|'.join(_BYTES_UNITS)})")


def file_bytes(text: str) -> int:
    """Return the number of bytes that a text such as 134217728 or 128MiB names."""
    match = _BYTES.fullmatch(text)
    count = int(match[1]) << 10 * _BYTES_UNITS.index(match[2]) if match else 0
    if not 1 <= count <= FILE_BYTES_MAX:
        raise click.BadParameter(f"{text!r} is no size from 1 to 1TiB, such as 64MiB or 1GiB")
    return count


def batch_rows_option(default: int, text: str) -> Callable[[F], F]:
    """Return the option for the size of a micro-batch."""
    least_one = click.IntRange(min=1)
    return click.option(
        "--batch-rows", type=least_one, default=default, show_default=True, help=text
    )


def _as_dict(
    _context: click.Context, _option: click.Parameter, pairs: Sequence[tuple[str, str]]
) -> dict[str, str]:
    return dict(pairs)


def spark_options(function: F) -> F:
    """Add the options of every job that runs Spark: its session, the retries and the cluster."""
    function = click.option(
        "--retry-timeout",
        "retry_timeout_s",
        type=duration_s,
        default=f"{RETRY_TIMEOUT_S:.0f}s",
        show_default=True,
        metavar="DURATION",
        help="Longest wait for an absent NameServer or broker.",
    )(cluster_options(function))
    function = click.option(
        "--conf",
        "settings",
        type=setting,
        multiple=True,
        callback=_as_dict,
        metavar="NAME=VALUE",
        help="Setting of Spark, such as spark.driver.memory=4g; may be repeated.",
    )(function)
    master = click.option("--master", default=LOCAL, show_default=True, help="Master of Spark.")
    return master(function)


# Options have the names of the jobs' keywords: a command passes those on that it does not check.


@click.command()
@click.argument("topics", nargs=-1)
@click.option(
    "--pattern", default="", metavar="REGEX", help="Archive every topic that matches REGEX."
)
@click.option(
    "--to", "folder", required=True, metavar="DIR", help="Folder of the archive: a path or a URI."
)
@click.option(
    "--from",
    "start",
    type=start,
    default="earliest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help=f"Start of the first run. {TIME_HELP}",
)
@click.option("--available-now", is_flag=True, help="End when all existing messages are archived.")
@click.option(
    "--interval",
    "interval_s",
    type=duration_s,
    metavar="DURATION",
    help="Run until Ctrl-C, with one micro-batch in each interval.",
)
@batch_rows_option(ARCHIVE_ROWS, "The most messages of a micro-batch.")
@click.option(
    "--file-bytes",
    type=file_bytes,
    default=f"{FILE_BYTES >> 20}MiB",
    show_default=True,
    metavar="SIZE",
    help="Approximate size of files. A file has 500,000 messages at most.",
)
@click.option(
    "--checkpoint",
    default="",
    metavar="DIR",
    help="Folder of the progress, instead of _checkpoint in --to.",
)
@spark_options
def archive(
    topics: tuple[str, ...],
    folder: str,
    available_now: bool,
    interval_s: float | None,
    output: str,
    **options: Any,
) -> None:
    """Archive TOPICS as Parquet in a folder, partitioned by topic and date, each message once.

    A repeat of the command continues, after any end of the last run. Without --interval the command
    ends when all messages that existed at its start are archived.
    """
    if available_now and interval_s is not None:
        raise click.UsageError("give either --available-now, which is the default, or --interval")
    with _ends_as_exits():
        done = archive_topics(
            topics, folder, interval_s=interval_s, observe=show_progress, **options
        )
    # An interruption is the only end of a run with --interval.
    _print_result(done, output, is_ended=interval_s is not None)


@click.command()
@click.argument("to_topic")
@click.option(
    "--parquet", "folder", default="", metavar="DIR", help="Send the messages of these files."
)
@click.option("--topic", default="", help="Send the stored messages of this topic.")
@click.option(
    "--from-nameserver",
    default="",
    metavar="HOST:PORT",
    help="NameServer of the cluster with --topic.",
)
@time_option("--from", "start_ms", help="Send only messages stored at or after this time.")
@time_option("--to", "end_ms", help="Send only messages stored before this time.")
@click.option(
    "--where", default="", metavar="SQL", help="Send only rows that match this condition."
)
@click.option("--checkpoint", default="", metavar="DIR", help="Folder of the progress.")
@click.option(
    "--once", is_flag=True, help="Send all rows in one batch, independent of earlier runs."
)
@click.option("--dry-run", is_flag=True, help="Count the messages, and send none.")
@batch_rows_option(BATCH_ROWS, "The most messages of a micro-batch.")
@spark_options
def replay(
    to_topic: str, checkpoint: str, once: bool, dry_run: bool, output: str, **options: Any
) -> None:
    """Send messages of an archive, of any Parquet or of a topic to TO_TOPIC again.

    With --checkpoint repeats of the command send no message twice, and each micro-batch becomes
    visible as a whole. Tags, keys, sharding keys and properties are kept.
    """
    if not dry_run and once == bool(checkpoint):
        raise click.UsageError("give either --checkpoint DIR, to send nothing twice, or --once")
    options |= {"checkpoint": checkpoint, "dry_run": dry_run}
    with _ends_as_exits():
        done = replay_messages(to_topic, observe=show_progress, **options)
    _print_result(done, output)


@click.command()
@click.option("--group", required=True, help="Group of the dead letters.")
@click.option(
    "--where", default="", metavar="SQL", help="Send only letters that match this condition."
)
@click.option("--checkpoint", default="", metavar="DIR", help="Folder of the progress.")
@click.option("--dry-run", is_flag=True, help="Count the messages, and send none.")
@batch_rows_option(BATCH_ROWS, "The most letters of a micro-batch.")
@spark_options
def redrive(group: str, checkpoint: str, dry_run: bool, output: str, **options: Any) -> None:
    """Send dead letters to their first topics, each once.

    The first run begins with the waiting letters of `ternmq dlq list`. The letters stay, and still
    count as waiting until `ternmq dlq drop` marks them.
    """
    if not dry_run and not checkpoint:
        raise click.UsageError("give a folder that stores the progress: --checkpoint DIR")
    options |= {"checkpoint": checkpoint, "dry_run": dry_run}
    with _ends_as_exits():
        done = redrive_letters(group, observe=show_progress, **options)
    _print_result(done, output)


@contextmanager
def _ends_as_exits() -> Generator[None]:
    """Turn errors into a line and an exit code, and an interruption into an exit code."""
    # Without a handler, logging would print when PySpark logs the interruption.
    logging.getLogger().addHandler(logging.NullHandler())
    # The log says why nothing happens.
    waits, handler = logging.getLogger(retry_timeout.__name__), logging.StreamHandler()
    waits.addHandler(handler)
    with errors_as_exits():
        try:
            yield
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        finally:
            waits.removeHandler(handler)


def show_progress(progress: BatchProgress) -> None:
    """Print a line for a micro-batch on standard error, apart from the summary."""
    print_line(str(progress), to_stderr=True)


def _print_result(done: Archived | ResendResult, output: str, *, is_ended: bool = False) -> None:
    """Print the result of a job. Leave with a code if it was stopped and `is_ended` is false."""
    fields = asdict(done)
    seconds, is_stopped = fields.pop("seconds"), fields.pop("is_stopped")
    print_record({**fields, "seconds": round(seconds, 1), "stopped": is_stopped}, output)
    if is_stopped and not is_ended:
        raise SystemExit(INTERRUPTED)
