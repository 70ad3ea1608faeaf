"""The rules by which a slave believes its master, or ends the stream. Pure.

Nothing that comes from the wire is believed because it comes from a master: a piece that does not
continue the log, or comes from another epoch than the one that was agreed on, ends the stream.
"""

from typing import Final, NamedTuple

from ternmq_broker.replication.protocol import ProtocolBroken
from ternmq_broker.state.epochs import Epochs
from ternmq_model.epochs import doubt_of
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import replication_pb2 as replication

PROBE_BYTES_MAX: Final = 64 << 10
_FILE_BYTES_MAX: Final = 1 << 40


class LogChange(NamedTuple):
    """Change of the closed log that a slave needs before it can follow."""

    keep_to: int
    """Physical offset: bytes before it are kept."""

    starts_over: bool
    """Nothing is kept: an empty log begins at `keep_to`."""

    file_bytes: int
    """Length of the log's files from then on; that of the master's."""

    epoch: int
    """The master's, which is to be kept as heard of before anything is cut."""

    @property
    def text(self) -> str:
        """Description of the change, for log lines."""
        if self.starts_over:
            return f"its log begins anew at {self.keep_to}, with files of {self.file_bytes} bytes"
        return f"its log is to be cut at {self.keep_to} first"


class SlaveLog(NamedTuple):
    """A slave's log, as it tells it."""

    store_id: str
    epochs: Epochs
    start: PhysicalOffset
    end: PhysicalOffset
    file_bytes: int

    @property
    def is_empty(self) -> bool:
        """It holds no byte."""
        return self.start == self.end


def check_probe(probe: replication.FollowProbe, log: SlaveLog) -> None:
    """Check that the bytes a master asks about are in the log, and not too many.

    Raises:
        ProtocolBroken: They are not.
    """
    if not (log.start <= probe.start < probe.end <= log.end):
        raise ProtocolBroken(
            f"it asks about bytes {probe.start} to {probe.end}, which are not here"
        )
    if probe.end - probe.start > PROBE_BYTES_MAX:
        raise ProtocolBroken(f"it asks about {probe.end - probe.start} bytes at once")


def change_wanted(
    accepted: replication.FollowAccepted, log: SlaveLog, epoch: int
) -> LogChange | None:
    """Return what must become of the slave's log before it can follow; None = nothing.

    Args:
        accepted: What the master says.
        log: The slave's.
        epoch: The master's.

    Raises:
        ProtocolBroken: What the master wants makes no sense.
    """
    if not log.is_empty and accepted.store_id != log.store_id:
        raise ProtocolBroken(
            f"its log is of store {accepted.store_id or 'unknown'}, the one here of {log.store_id}"
        )
    if not 0 < accepted.log_file_bytes <= _FILE_BYTES_MAX:
        raise ProtocolBroken(f"its log has files of {accepted.log_file_bytes} bytes")
    if accepted.HasField("cut"):
        cut = accepted.cut
        if not cut.starts_over and not log.start <= cut.keep_to < log.end:
            raise ProtocolBroken(f"it wants the log cut at {cut.keep_to}")
        if cut.starts_over:
            _check_start(cut.keep_to, accepted.log_file_bytes)
        return LogChange(cut.keep_to, cut.starts_over, accepted.log_file_bytes, epoch)
    if accepted.log_file_bytes != log.file_bytes:
        if not log.is_empty:
            raise ProtocolBroken(
                f"its log has files of {accepted.log_file_bytes} bytes, the one here of"
                f" {log.file_bytes}: begin with an empty data directory"
            )
        _check_start(log.end, accepted.log_file_bytes)
        return LogChange(log.end, True, accepted.log_file_bytes, epoch)
    if accepted.start != log.end:
        raise ProtocolBroken(f"its bytes begin at {accepted.start}, the log here ends at {log.end}")
    return None


def _check_start(at: int, file_bytes: int) -> None:
    if at < 0 or at % file_bytes:
        raise ProtocolBroken(f"no log with files of {file_bytes} bytes begins at {at}")


def check_master(epochs: Epochs, *, highest_epoch: int) -> int:
    """Return the master's epoch.

    Args:
        epochs: Its own.
        highest_epoch: The highest that was ever heard of, from whomever.

    Raises:
        ProtocolBroken: There is none, a newer master than this one is known, or its epoch is not
            believed.
    """
    if not epochs:
        raise ProtocolBroken("it tells no epoch")
    if epochs[-1].number < highest_epoch:
        raise ProtocolBroken(f"its epoch {epochs[-1].number} is over: {highest_epoch} has begun")
    if doubt := doubt_of(epochs[-1].number, highest_epoch):
        raise ProtocolBroken(doubt)
    return epochs[-1].number


def check_piece(
    piece: replication.LogPiece, *, epoch: int, highest_epoch: int, log_end: int
) -> None:
    """Check that a piece continues the log, and comes from the master that was agreed on.

    Args:
        piece: With bytes or without.
        epoch: Of the master.
        highest_epoch: The highest that was ever heard of.
        log_end: Where the slave's log ends.

    Raises:
        ProtocolBroken: It does not.
    """
    if piece.epoch != epoch:
        raise ProtocolBroken(f"a piece of epoch {piece.epoch} came from the master of {epoch}")
    if epoch < highest_epoch:
        raise ProtocolBroken(f"its epoch {epoch} is over: {highest_epoch} has begun")
    if piece.data and piece.start != log_end:
        raise ProtocolBroken(f"bytes of {piece.start} came, the log here ends at {log_end}")
