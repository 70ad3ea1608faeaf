"""The rules by which a slave accepts messages of its master, or ends the stream. Pure.

A slave checks each message although a master sends it: a piece that does not continue the log, or
belongs to another epoch than the handshake's, ends the stream.
"""

from typing import Final

from ternmq_broker.replication.protocol import ProtocolBroken
from ternmq_broker.state.epochs import PROBE_BYTES, Epochs, MemberLog
from ternmq_broker.state.replication_record import LogCut
from ternmq_model.epochs import doubt_of
from ternmq_protos.v1 import replication_pb2 as replication

_FILE_BYTES_MAX: Final = 1 << 40


def check_probe(probe: replication.FollowProbe, log: MemberLog) -> None:
    """Check that the bytes of a probe are in the log, and not too many.

    Raises:
        ProtocolBroken: The probe is impossible.
    """
    if not (log.start <= probe.start < probe.end <= log.end):
        raise ProtocolBroken(
            f"its probe is about bytes {probe.start} to {probe.end}, which this log lacks"
        )
    if probe.end - probe.start > PROBE_BYTES:
        raise ProtocolBroken(f"its probe has {probe.end - probe.start} bytes")


def cut_text(cut: LogCut) -> str:
    """Return the description of a cut for log lines."""
    if cut.starts_over:
        return f"its log begins again at {cut.keep_to}, with files of {cut.file_bytes} bytes"
    return f"its log is to be cut at {cut.keep_to} first"


def cut_needed(
    accepted: replication.FollowAccepted, log: MemberLog, *, file_bytes: int
) -> LogCut | None:
    """Return the cut that the slave's log needs before the slave can follow; None for no cut.

    Raises:
        ProtocolBroken: The answer is impossible.
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
            raise ProtocolBroken(f"it requires this log to be cut at {cut.keep_to}")
        if cut.starts_over:
            _check_start(cut.keep_to, accepted.log_file_bytes)
        return LogCut(cut.keep_to, cut.starts_over, accepted.log_file_bytes)
    if accepted.log_file_bytes != file_bytes:
        if not log.is_empty:
            raise ProtocolBroken(
                f"its log has files of {accepted.log_file_bytes} bytes, the one here of"
                f" {file_bytes}: begin with an empty data directory"
            )
        _check_start(log.end, accepted.log_file_bytes)
        return LogCut(log.end, True, accepted.log_file_bytes)
    if accepted.start != log.end:
        raise ProtocolBroken(f"its bytes begin at {accepted.start}, the log here ends at {log.end}")
    return None


def _check_start(at: int, file_bytes: int) -> None:
    if at < 0 or at % file_bytes:
        raise ProtocolBroken(f"no log with files of {file_bytes} bytes begins at {at}")


def check_master(epochs: Epochs, *, highest_epoch: int) -> int:
    """Return the master's epoch.

    Raises:
        ProtocolBroken: The list is empty, a newer epoch is known, or the epoch is implausible.
    """
    if not epochs:
        raise ProtocolBroken("it sends no epoch")
    if epochs[-1].number < highest_epoch:
        raise ProtocolBroken(f"its epoch {epochs[-1].number} is over: {highest_epoch} has begun")
    if doubt := doubt_of(epochs[-1].number, highest_epoch):
        raise ProtocolBroken(doubt)
    return epochs[-1].number


def check_succession(
    piece: replication.LogPiece, *, epoch: int, highest_epoch: int, log_end: int
) -> None:
    """Check that a piece continues the log, and belongs to the epoch of the handshake.

    Raises:
        ProtocolBroken: The piece is impossible.
    """
    if piece.epoch != epoch:
        raise ProtocolBroken(f"a piece of epoch {piece.epoch} came from the master of {epoch}")
    if epoch < highest_epoch:
        raise ProtocolBroken(f"its epoch {epoch} is over: {highest_epoch} has begun")
    if piece.data and piece.start != log_end:
        raise ProtocolBroken(f"bytes of {piece.start} came, the log here ends at {log_end}")
