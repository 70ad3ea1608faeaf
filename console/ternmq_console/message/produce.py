"""`ternmq produce`: lines of standard input become messages."""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise

import click
import numpy as np

from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import cluster_options, duration_ms
from ternmq_console.cli.output import print_json, print_line
from ternmq_model.arrays import Ints
from ternmq_model.errors import IllegalMessage, TernError, UsageError
from ternmq_model.message import Message, SendManyFailed, SendResult
from ternmq_model.names import check_topic
from ternmq_model.record.format import BODY_BYTES_MAX
from ternmq_producer.batch.column_results import SendColumnsFailed
from ternmq_producer.blocking_producer import BlockingProducer

GROUP = "TOOLS_PRODUCER"
_READ_BYTES = 1 << 20


@click.command()
@click.argument("topic")
@click.option("--tag", default="", help="Tag of every message.")
@click.option("--key", "keys", multiple=True, help="Key of every message; may be repeated.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of every message; may be repeated.",
)
@click.option(
    "--sharding-key", default="", help="Send all messages to the queue of this key, in order."
)
@click.option(
    "--delay-level", type=int, default=0, help="Delay of the delivery: 1 = 1 s to 18 = 2 h."
)
@click.option(
    "--deliver-after",
    default="",
    metavar="DURATION",
    help="Delay of the delivery, at most 3d, such as 90s; to 100 ms.",
)
@cluster_options
def produce(
    topic: str,
    tag: str,
    keys: Sequence[str],
    properties: Sequence[str],
    sharding_key: str,
    delay_level: int,
    deliver_after: str,
    nameserver: str,
    output: str,
) -> None:
    """Send each line of standard input as a message to TOPIC.

    A line is sent as soon as it is read, without its line end. With `-o json` each result is one
    object on a line; otherwise the command prints the number of messages at the end.
    """
    with errors_as_exits():
        check_topic(topic)
        pairs = dict(map(_pair, properties))
        after_ms = duration_ms(deliver_after) if deliver_after else 0
        sent = 0
        with BlockingProducer(GROUP, nameserver=nameserver) as producer:

            def send_messages(data: bytes, offsets: Ints) -> int:
                ends = offsets.tolist()
                results = producer.send_many(
                    [
                        Message(
                            topic,
                            data[start:end],
                            tags=tag,
                            keys=tuple(keys),
                            properties=pairs,
                            sharding_key=sharding_key,
                            delay_level=delay_level,
                            deliver_after_ms=after_ms,
                        )
                        for start, end in pairwise(ends)
                    ]
                )
                return _tell(results, output)

            def send_columns(data: bytes, offsets: Ints) -> int:
                results = producer.send_columns(
                    topic,
                    (data, offsets),
                    tags=tag,
                    keys=[tuple(keys)] * (len(offsets) - 1) if keys else None,
                    properties=pairs,
                    sharding_keys=sharding_key,
                )
                return len(results)

            needs_messages = output == "json" or delay_level or after_ms
            send = send_messages if needs_messages else send_columns
            try:
                for lines in _lines(0):
                    sent += send(*lines)
            except SendManyFailed as error:
                stored = [one for one in error.results if isinstance(one, SendResult)]
                sent += _tell(stored, output)
                print_line(f"sent {sent}", to_stderr=True)
                raise next(one for one in error.results if isinstance(one, TernError)) from None
            except SendColumnsFailed as failed:
                errors = list(failed.results.errors.values())
                print_line(f"sent {sent + len(failed.results) - len(errors)}", to_stderr=True)
                raise errors[0] from None
            except IllegalMessage:
                print_line(f"sent {sent}", to_stderr=True)
                raise
        if output != "json":
            print_line(f"sent {sent}")


def _tell(results: Sequence[SendResult], output: str) -> int:
    if output == "json":
        for result in results:
            row = {
                "status": result.status.name,
                "message_id": result.message_id,
                "offset_message_id": result.offset_message_id,
                "broker": result.queue.broker_name,
                "queue": result.queue.queue_id,
                "offset": result.queue_offset,
            }
            print_json(row)
    return len(results)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--property {text!r}: must be NAME=VALUE")
    return name, value


def _lines(descriptor: int) -> Iterator[tuple[bytes, Ints]]:
    """Yield the complete lines after each read: their bytes, and the offsets between the lines.

    The last line may lack its end.

    Raises:
        IllegalMessage: A line is longer than the longest body.
    """
    rest = b""
    while data := os.read(descriptor, _READ_BYTES):
        whole, line_end, rest = (rest + data).rpartition(b"\n")
        if line_end:
            ends = np.flatnonzero(np.frombuffer(whole + line_end, dtype=np.uint8) == ord(line_end))
            # Without the line ends, each of which moves what follows by one.
            yield whole.replace(b"\n", b""), np.append([0], ends - np.arange(len(ends)))
        if len(rest) > BODY_BYTES_MAX:
            raise IllegalMessage(f"a line has more than {BODY_BYTES_MAX} bytes")
    if rest:
        yield rest, np.array([0, len(rest)])
