"""Main module of the scanning process: `python -m ternmq_store.scan_process.child`.

A broker spawns the process. The process answers requests from its standard input, one after the
other, and ends at the end of the input, also after a kill of the broker. It never writes to the
store's directory.
"""

import fcntl
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from ternmq_store.scan_process.frames import (
    FrameHeader,
    FrameKind,
    FrameReader,
    ScanAnswer,
    ScanAnswers,
    ScanRequest,
    header_bytes,
)

NICENESS: Final = 10
"""Niceness of the process, so that sends of the broker take precedence."""

_PIPE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
_WRITE_BYTES: Final = 1 << 20


class _BrokerGone(Exception):
    """End of the pipes: the broker has gone."""


class Pipes:
    """Pipes to the broker. Owned by this process.

    Args:
        input_fd: Descriptor of the requests.
        output_fd: Descriptor of the answers.
    """

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self._input = input_fd
        self._output = output_fd
        self._frames = FrameReader()
        self._requests: list[tuple[int, ScanRequest]] = []
        self._payload = b""
        self._stopped = 0

    def next_request(self) -> tuple[int, ScanRequest]:
        """Wait for a request and return it with its number.

        Raises:
            _BrokerGone: The input has ended.
        """
        while not self._requests:
            self._receive()
        return self._requests.pop(0)

    def is_stopped(self, request_id: int) -> bool:
        """Return whether the broker stopped the scan of a request. Does not wait.

        Raises:
            _BrokerGone: The input has ended.
        """
        while select.select([self._input], [], [], 0)[0]:
            self._receive()
        return self._stopped >= request_id

    def write(self, request_id: int, answer: ScanAnswer) -> None:
        """Write a part of an answer, waiting while the broker's reader is slow.

        Raises:
            _BrokerGone: The output is closed.
        """
        kind, payload, next_offset, damaged, rows = answer
        header = FrameHeader(kind, request_id, len(payload), next_offset, damaged, rows)
        self._put(header_bytes(header))
        self._put(payload)

    def _put(self, data: "bytes | memoryview") -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._output, view[:_WRITE_BYTES]) :]
        except BrokenPipeError:
            raise _BrokerGone from None

    def _receive(self) -> None:
        data = os.read(self._input, _READ_BYTES)
        if not data:
            raise _BrokerGone
        for header, part, is_last in self._frames.feed(data):
            self._payload += part
            if is_last:
                payload, self._payload = self._payload, b""
                if header.kind is FrameKind.STOP:
                    self._stopped = header.request_id
                else:
                    self._requests.append((header.request_id, ScanRequest.from_bytes(payload)))


def serve(pipes: Pipes, answer: ScanAnswers) -> None:
    """Answer requests until the end of the input."""
    with suppress(_BrokerGone):
        while True:
            request_id, request = pipes.next_request()
            _serve_one(pipes, request_id, answer(request))


def _serve_one(pipes: Pipes, request_id: int, answers: Iterator[ScanAnswer]) -> None:
    for each in answers:
        pipes.write(request_id, each)
        if each.kind is FrameKind.END:
            return
        if pipes.is_stopped(request_id):
            break
    pipes.write(request_id, ScanAnswer(FrameKind.END))


def main(answers: Callable[[], ScanAnswers]) -> None:
    """Run the process.

    Args:
        answers: Function that returns the function of answers. It may take long.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the broker, which then ends this one
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    os.nice(NICENESS)
    input_fd, output_fd = sys.stdin.fileno(), sys.stdout.fileno()
    with suppress(AttributeError, OSError):  # Linux alone has it, and the user has so many pages
        fcntl.fcntl(output_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    serve(Pipes(input_fd, output_fd), answers())


def _from_the_disk() -> ScanAnswers:
    """Return the function of answers from the disk. This call imports Arrow."""
    from ternmq_store.disk.filesystem import RealFileSystem
    from ternmq_store.scan_process.answers import answers

    return answers(RealFileSystem())


if __name__ == "__main__":
    main(_from_the_disk)
