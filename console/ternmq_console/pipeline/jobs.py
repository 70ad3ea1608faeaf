"""`ternmq pipeline archive|replay|redrive`: topics to and from files, with Spark."""

import logging
import re
from collections.abc import Callable, Generator, Mapping
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
from ternmq_pipeline.jobs.archive import FILE_BYTES, FILE_BYTES_MAX
from ternmq_pipeline.jobs.archive import archive as archive_topics
from ternmq_pipeline.jobs.driver.batch_progress import BatchProgress
from ternmq_pipeline.jobs.driver.spark_session import LOCAL
from ternmq_pipeline.jobs.redrive import redrive as redrive_letters
from ternmq_pipeline.jobs.replay import replay as replay_messages
from ternmq_pipeline.jobs.resend import BATCH_ROWS, ResendResult
from ternmq_pipeline.jobs.start_options import START_POSITIONS

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED: Final = 130
"""The exit code that a shell shows of a process that Ctrl-C ended."""


def setting(text: str) -> tuple[str, str]:
    """Return name and value of a setting of Spark's.

    Raises:
        BadParameter: It has no `=`, or no name before it.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise click.BadParameter(f"{text!r} is no setting such as spark.driver.memory=4g")
    return name, value


def start(text: str) -> str:
    """Return where a stream begins, as a job is to be told.

    Raises:
        BadParameter: It is neither an edge nor a time.
    """
    return text if text in START_POSITIONS else str(time_ms(text))


_BYTES_UNITS: Final = ("", "KiB", "MiB", "GiB", "TiB")
_BYTES: Final = re.compile(f"([0-9]{{1,13}})({'|'.join(_BYTES_UNITS)})")


def file_bytes(text: str) -> int:
    """Return a number of bytes such as 134217728 or 128MiB.

    Raises:
        BadParameter: It is no such number, or one that no file may be told to have.
    """
    match = _BYTES.fullmatch(text)
    count = int(match[1]) << 10 * _BYTES_UNITS.index(match[2]) if match else 0
    if not 1 <= count <= FILE_BYTES_MAX:
        raise click.BadParameter(f"{text!r} is no size from 1 to 1TiB, such as 64MiB or 1GiB")
    return count


def most_option(name: str, default: int, text: str) -> Callable[[F], F]:
    """Return the option for a number that is at least 1."""
    least_one = click.IntRange(min=1)
    return click.option(name, type=least_one, default=default, show_default=True, help=text)


def spark_options(function: F) -> F:
    """Add what all jobs have that run Spark: `--master`, `--conf` and `--retry-timeout`."""
    function = click.option(
        "--retry-timeout",
        type=duration_ms,
        default=f"{RETRY_TIMEOUT_S:.0f}s",
        show_default=True,
        metavar="DURATION",
        help="How long to wait for a NameServer or broker that is away.",
    )(function)
    function = click.option(
        "--conf",
        "settings",
        type=setting,
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of Spark, such as spark.driver.memory=4g; may be repeated.",
    )(function)
    master = click.option("--master", default=LOCAL, show_default=True, help="Spark's master.")
    return master(function)


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--pattern", default="", metavar="REGEX", help="Every topic that it matches.")
@click.option("--to", "folder", required=True, metavar="DIR", help="The archive: a path or a URI.")
@click.option(
    "--from",
    "begin",
    type=start,
    default="earliest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help=f"Where the first run begins. {TIME_HELP}",
)
@click.option("--available-now", is_flag=True, help="End when all that is there is archived.")
@click.option(
    "--interval",
    type=duration_ms,
    metavar="DURATION",
    help="Go on until Ctrl-C, with a micro-batch so often.",
)
@most_option("--batch-rows", ARCHIVE_ROWS, "The most messages of a micro-batch.")
@click.option(
    "--file-bytes",
    "size",
    type=file_bytes,
    default=f"{FILE_BYTES >> 20}MiB",
    show_default=True,
    metavar="SIZE",
    help="About how large files are to be. A file holds 500,000 messages at most.",
)
@click.option("--checkpoint", default="", metavar="DIR", help="Instead of _checkpoint in --to.")
@spark_options
@cluster_options
def archive(
    topics: tuple[str, ...],
    pattern: str,
    folder: str,
    begin: str,
    available_now: bool,
    interval: int | None,
    batch_rows: int,
    size: int,
    checkpoint: str,
    retry_timeout: int,
    master: str,
    settings: tuple[tuple[str, str], ...],
    nameserver: str,
    output: str,
) -> None:
    """Keep TOPICS as Parquet in a folder, parted by topic and date, each message once.

    Give the command again and it goes on where it was, whatever ended it. Without --interval it
    ends when all is archived that was there when it began.
    """
    if available_now and interval is not None:
        raise click.UsageError("either --available-now, which is what happens, or --interval")
    with _ends_as_exits():
        done = archive_topics(
            topics,
            folder,
            nameserver=nameserver,
            pattern=pattern,
            start=begin,
            interval_s=None if interval is None else interval / 1000,
            batch_rows=batch_rows,
            file_bytes=size,
            checkpoint=checkpoint,
            retry_timeout_s=retry_timeout / 1000,
            observe=show_progress,
            master=master,
            settings=dict(settings),
        )
    print_record(_record(asdict(done), done.seconds), output)
    # Who runs it with --interval ends it so: it has done what it was to do.
    if done.is_stopped and interval is None:
        raise SystemExit(INTERRUPTED)


@click.command()
@click.argument("to_topic")
@click.option("--parquet", "folder", default="", metavar="DIR", help="Send these files.")
@click.option("--topic", default="", help="Send what this topic keeps.")
@click.option("--from-nameserver", default="", metavar="HOST:PORT", help="--topic is there.")
@time_option("--from", "begin", help="What was stored since then.")
@time_option("--to", "end", help="What was stored before.")
@click.option("--where", default="", metavar="SQL", help="Only rows for which this is true.")
@click.option("--checkpoint", default="", metavar="DIR", help="Keeps what was sent.")
@click.option("--once", is_flag=True, help="All in one batch, whatever was sent before.")
@click.option("--dry-run", is_flag=True, help="Send nothing, and count.")
@most_option("--batch-rows", BATCH_ROWS, "The most messages of a micro-batch.")
@spark_options
@cluster_options
def replay(
    to_topic: str,
    folder: str,
    topic: str,
    from_nameserver: str,
    begin: int | None,
    end: int | None,
    where: str,
    checkpoint: str,
    once: bool,
    dry_run: bool,
    batch_rows: int,
    retry_timeout: int,
    master: str,
    settings: tuple[tuple[str, str], ...],
    nameserver: str,
    output: str,
) -> None:
    """Send messages of an archive, of any Parquet or of a topic to TO_TOPIC again.

    With --checkpoint nothing is sent twice, however often the command is given; each micro-batch
    becomes visible as a whole. Tags, keys, sharding keys and properties are kept.
    """
    if not dry_run and once == bool(checkpoint):
        raise click.UsageError("tell which: --checkpoint DIR, to send nothing twice, or --once")
    with _ends_as_exits():
        done = replay_messages(
            to_topic,
            nameserver=nameserver,
            folder=folder,
            topic=topic,
            from_nameserver=from_nameserver,
            start_ms=begin,
            end_ms=end,
            where=where,
            checkpoint=checkpoint,
            dry_run=dry_run,
            batch_rows=batch_rows,
            retry_timeout_s=retry_timeout / 1000,
            observe=show_progress,
            master=master,
            settings=dict(settings),
        )
    _print_sent(done, output)


@click.command()
@click.option("--group", required=True, help="Whose dead letters.")
@click.option("--where", default="", metavar="SQL", help="Only letters for which this is true.")
@click.option("--checkpoint", default="", metavar="DIR", help="Keeps what was sent.")
@click.option("--dry-run", is_flag=True, help="Send nothing, and count.")
@most_option("--batch-rows", BATCH_ROWS, "The most letters of a micro-batch.")
@spark_options
@cluster_options
def redrive(
    group: str,
    where: str,
    checkpoint: str,
    dry_run: bool,
    batch_rows: int,
    retry_timeout: int,
    master: str,
    settings: tuple[tuple[str, str], ...],
    nameserver: str,
    output: str,
) -> None:
    """Send dead letters to the topics that they were sent to first, each once.

    The first run begins with those that wait, as `ternmq dlq list` counts them. The letters stay,
    and wait on: `ternmq dlq drop` marks them.
    """
    if not dry_run and not checkpoint:
        raise click.UsageError("name a folder where it is kept what was sent: --checkpoint DIR")
    with _ends_as_exits():
        done = redrive_letters(
            group,
            nameserver=nameserver,
            checkpoint=checkpoint,
            where=where,
            dry_run=dry_run,
            batch_rows=batch_rows,
            retry_timeout_s=retry_timeout / 1000,
            observe=show_progress,
            master=master,
            settings=dict(settings),
        )
    _print_sent(done, output)


@contextmanager
def _ends_as_exits() -> Generator[None]:
    """Turn errors into a line and an exit code, and an interruption into an exit code."""
    # Else logging begins to print when PySpark tells it of the interruption that we raise.
    logging.getLogger().addHandler(logging.NullHandler())
    # Who sits there is told why nothing happens.
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
    """Print a line for a micro-batch on standard error, where it does not meet the summary."""
    print_line(str(progress), to_stderr=True)


def _print_sent(done: ResendResult, output: str) -> None:
    print_record(_record(asdict(done), done.seconds), output)
    if done.is_stopped:
        raise SystemExit(INTERRUPTED)


def _record(fields: Mapping[str, object], seconds: float) -> dict[str, object]:
    """Return a summary: `is_stopped` is what a program asks for, `stopped` what people read."""
    found = {name: value for name, value in fields.items() if name not in ("is_stopped", "seconds")}
    return {**found, "seconds": round(seconds, 1), "stopped": fields["is_stopped"]}
