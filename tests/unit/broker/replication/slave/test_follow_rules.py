from typing import Any

import pytest

from ternmq_broker.replication.protocol import ProtocolBroken
from ternmq_broker.replication.slave.follow_rules import (
    check_master,
    check_probe,
    check_succession,
    cut_needed,
    cut_text,
)
from ternmq_broker.state.epochs import Epoch, Epochs, MemberLog
from ternmq_broker.state.replication_record import LogCut
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import replication_pb2 as replication


def epochs(*pairs: tuple[int, int]) -> Epochs:
    return tuple(Epoch(number, PhysicalOffset(start)) for number, start in pairs)


def log(start: int = 100, end: int = 900) -> MemberLog:
    whose = epochs((1, 0))
    return MemberLog(whose, PhysicalOffset(start), PhysicalOffset(end), "s")


def accepted(**fields: Any) -> replication.FollowAccepted:
    whole: dict[str, Any] = {"store_id": "s", "start": 900, "log_file_bytes": 100, **fields}
    return replication.FollowAccepted(**whole)


@pytest.mark.parametrize(
    ("start", "end"), [(99, 200), (200, 200), (300, 200), (800, 901), (-5, 200)]
)
def test_probes_outside_the_log_are_refused(start: int, end: int) -> None:
    check_probe(replication.FollowProbe(start=100, end=900), log())
    with pytest.raises(ProtocolBroken):
        check_probe(replication.FollowProbe(start=start, end=end), log())


def test_probe_of_more_than_64_kib_is_refused() -> None:
    with pytest.raises(ProtocolBroken, match="its probe has 65537 bytes"):
        check_probe(replication.FollowProbe(start=0, end=65_537), log(0, 1 << 20))


def test_fitting_log_is_left_as_it_is() -> None:
    assert cut_needed(accepted(), log(), file_bytes=100) is None


@pytest.mark.parametrize("store_id", ["", "another"])
@pytest.mark.parametrize("cut", [None, replication.FollowCut(keep_to=500)])
def test_log_is_not_cut_for_a_master_of_another_store(
    store_id: str, cut: replication.FollowCut | None
) -> None:
    with pytest.raises(
        ProtocolBroken, match=f"of store {store_id or 'unknown'}, the one here of s"
    ):
        cut_needed(accepted(store_id=store_id, cut=cut), log(), file_bytes=100)
    assert cut_needed(accepted(store_id="another"), log(900, 900), file_bytes=100) is None


def test_log_is_cut_only_within_itself() -> None:
    cut = replication.FollowCut(keep_to=500)
    needed = cut_needed(accepted(cut=cut), log(), file_bytes=100)
    assert needed is not None
    assert needed == LogCut(500, False, 100)
    assert cut_text(needed) == "its log is to be cut at 500 first"
    for keep_to in (99, 900, 5000, -1):
        with pytest.raises(ProtocolBroken, match="cut at"):
            cut_needed(accepted(cut=replication.FollowCut(keep_to=keep_to)), log(), file_bytes=100)


def test_replaced_log_starts_where_the_masters_begins() -> None:
    cut = replication.FollowCut(keep_to=4000, starts_over=True)
    needed = cut_needed(accepted(cut=cut, log_file_bytes=200), log(), file_bytes=100)
    assert needed is not None
    assert needed == LogCut(4000, True, 200)
    assert cut_text(needed) == "its log begins again at 4000, with files of 200 bytes"
    for keep_to in (-200, -1, 4100):
        wild = replication.FollowCut(keep_to=keep_to, starts_over=True)
        with pytest.raises(ProtocolBroken, match=f"begins at {keep_to}"):
            cut_needed(accepted(cut=wild, log_file_bytes=200), log(), file_bytes=100)


def test_file_length_is_adopted_only_by_an_empty_log() -> None:
    empty = log(900, 900)
    assert cut_needed(accepted(log_file_bytes=50), empty, file_bytes=100) == LogCut(900, True, 50)
    with pytest.raises(ProtocolBroken, match="files of 50 bytes, the one here of 100"):
        cut_needed(accepted(log_file_bytes=50), log(), file_bytes=100)
    for wild in (0, -100, 1 << 41):
        with pytest.raises(ProtocolBroken, match=f"files of {wild} bytes"):
            cut_needed(accepted(log_file_bytes=wild), empty, file_bytes=100)
    with pytest.raises(ProtocolBroken, match="begins at 900"):
        cut_needed(accepted(log_file_bytes=70), empty, file_bytes=100)


def test_bytes_that_begin_elsewhere_are_not_waited_for() -> None:
    with pytest.raises(ProtocolBroken, match="begin at 800"):
        cut_needed(accepted(start=800), log(), file_bytes=100)


def test_master_of_past_leadership_is_not_followed() -> None:
    assert check_master(epochs((1, 0), (5, 3)), highest_epoch=5) == 5
    with pytest.raises(ProtocolBroken, match="epoch 5 is over: 6 has begun"):
        check_master(epochs((1, 0), (5, 3)), highest_epoch=6)
    with pytest.raises(ProtocolBroken, match="no epoch"):
        check_master((), highest_epoch=0)
    with pytest.raises(ProtocolBroken, match="repair-epoch"):
        check_master(epochs((1, 0), (1 << 62, 3)), highest_epoch=5)


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (replication.LogPiece(epoch=4, start=900, data=b"x"), "of epoch 4"),
        (replication.LogPiece(epoch=6), "of epoch 6"),
        (replication.LogPiece(epoch=5, start=901, data=b"x"), "ends at 900"),
        (replication.LogPiece(epoch=5, start=0, data=b"x"), "ends at 900"),
    ],
)
def test_discontinuous_piece_ends_the_stream(piece: replication.LogPiece, why: str) -> None:
    with pytest.raises(ProtocolBroken, match=why):
        check_succession(piece, epoch=5, highest_epoch=5, log_end=900)


def test_pieces_are_refused_once_a_higher_epoch_is_known() -> None:
    piece = replication.LogPiece(epoch=5, start=900, data=b"x")
    check_succession(piece, epoch=5, highest_epoch=5, log_end=900)
    check_succession(replication.LogPiece(epoch=5), epoch=5, highest_epoch=5, log_end=900)
    with pytest.raises(ProtocolBroken, match="is over"):
        check_succession(piece, epoch=5, highest_epoch=6, log_end=900)
