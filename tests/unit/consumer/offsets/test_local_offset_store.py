"""Offsets that a member that broadcasts keeps for itself."""

import asyncio
from pathlib import Path

import pytest

from ternmq_consumer.offsets.local_offset_store import (
    LocalOffset,
    LocalOffsetStore,
    decode_offsets,
    encode_offsets,
    offsets_path,
    open_local_offset_store,
    own_group,
)
from ternmq_model.errors import StoreError
from ternmq_model.names import GROUP_BYTES_MAX, check_group
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import run_in_virtual_time

FIRST, SECOND = MessageQueue("t", "b", 0), MessageQueue("%RETRY%g", "b", 1)


def opened(path: Path, epoch: int = 0) -> LocalOffsetStore:
    return asyncio.run(open_local_offset_store(path, InlineBlocking(), lambda _: epoch))


def committed(offsets: LocalOffsetStore) -> bool:
    return asyncio.run(offsets.commit())


def kept(offsets: LocalOffsetStore, queue: MessageQueue) -> QueueOffset | None:
    told = asyncio.run(offsets.query(queue))
    return None if told is None else told.offset


def test_offsets_file_contains_the_noted_offsets() -> None:
    offsets = {FIRST: LocalOffset(QueueOffset(5), 1_001_000), SECOND: LocalOffset(QueueOffset(0))}
    assert decode_offsets(encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"format": 2, "offsets": []}',
        b'{"format": 1, "offsets": [{"topic": "t"}]}',
        b'{"format": 1, "offsets": [{"topic": 1, "broker_name": "b", "queue_id": 0, "offset": 0}]}',
        b'{"format": 1, "offsets": [{"topic": "t", "broker_name": "b", "queue_id": 0, '
        b'"offset": -1}]}',
        b'{"format": 1, "offsets": [{"topic": "t", "broker_name": "b", "queue_id": 0, "offset": 1, '
        b'"epoch": "1"}]}',
    ],
)
def test_malformed_offsets_file_is_an_error(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(data)
    with pytest.raises(StoreError):
        opened(path)


@pytest.mark.parametrize("client_id", ["host@DEFAULT", "../../etc@x", "a/b@c d", ".@."])
def test_client_id_never_leads_out_of_the_folder(client_id: str, tmp_path: Path) -> None:
    path = offsets_path(tmp_path, client_id, "g")
    assert path.resolve().parent.parent.parent == tmp_path.resolve()
    assert path.name == "offsets.json"


def test_every_client_has_its_own_legal_name_at_the_brokers() -> None:
    ids = ["a@b", "a-b", "a@b ", "ä@b", "x" * 500, "x" * 501]
    names = {own_group("g" * 120, client_id) for client_id in ids}
    names |= {own_group("g", client_id) for client_id in ids}
    assert len(names) == 2 * len(ids)
    for name in names:
        assert len(check_group(name)) <= GROUP_BYTES_MAX


def test_committed_offsets_survive_reopening_the_file(tmp_path: Path) -> None:
    path = offsets_path(tmp_path / "new", "host@DEFAULT", "g")
    offsets = opened(path)
    assert kept(offsets, FIRST) is None
    offsets.begin(FIRST, QueueOffset(3), None)
    offsets.update(FIRST, QueueOffset(9))
    offsets.update(FIRST, QueueOffset(7))
    offsets.update(SECOND, QueueOffset(1))
    assert committed(offsets)
    again = opened(path)
    assert kept(again, FIRST) == 9
    assert kept(again, SECOND) is None


@pytest.mark.parametrize("is_restarted", [False, True])
def test_flipped_digit_of_a_local_offset_passes_over_no_message(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    path = tmp_path / "f" / "offsets.json"
    offsets = opened(path)
    offsets.begin(FIRST, QueueOffset(222), None)
    assert committed(offsets)
    if is_restarted:
        offsets.restart(FIRST, QueueOffset(111))
        assert committed(offsets)
    path.write_bytes(path.read_bytes().replace(b'"offset": ', b'"offset": 9'))
    assert kept(opened(path), FIRST) == (111 if is_restarted else 222)


def test_offsets_file_records_the_epoch_of_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "f" / "offsets.json"
    offsets = opened(path, epoch=1)
    assert offsets.epoch(FIRST) is None
    offsets.begin(FIRST, QueueOffset(3), None)
    assert committed(offsets)
    again = opened(path, epoch=1_001_000)
    again.begin(FIRST, QueueOffset(3), QueueOffset(3))
    assert again.epoch(FIRST) == 1
    again.update(FIRST, QueueOffset(4))
    assert again.epoch(FIRST) == 1_001_000


def test_offsets_file_without_epochs_can_be_read() -> None:
    row = b'{"topic": "t", "broker_name": "b", "queue_id": 0, "offset": 7}'
    found = decode_offsets(b'{"format": 1, "offsets": [%s]}' % row)
    assert found == {FIRST: LocalOffset(QueueOffset(7), 0)}


def test_returning_queue_is_remembered_and_a_deleted_one_is_not(
    tmp_path: Path,
) -> None:
    offsets = opened(tmp_path / "f" / "offsets.json")
    for queue in (FIRST, SECOND):
        offsets.begin(queue, QueueOffset(5), None)
    offsets.forget([FIRST])
    offsets.gone(SECOND)
    offsets.update(FIRST, QueueOffset(8))
    assert kept(offsets, FIRST) == 5
    assert kept(offsets, SECOND) is None


def test_backward_correction_counts(tmp_path: Path) -> None:
    offsets = opened(tmp_path / "f" / "offsets.json")
    offsets.begin(FIRST, QueueOffset(50), QueueOffset(50))
    offsets.restart(FIRST, QueueOffset(10))
    offsets.update(FIRST, QueueOffset(11))
    assert kept(offsets, FIRST) == 11
    assert not offsets.reset(FIRST, QueueOffset(3), 1)


def test_unchanged_offsets_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "f" / "offsets.json"
    offsets = opened(path)
    offsets.begin(FIRST, QueueOffset(5), QueueOffset(5))
    assert committed(offsets)
    assert not path.exists()


def test_failing_save_is_retried(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    offsets = opened(folder / "offsets.json")
    offsets.begin(FIRST, QueueOffset(5), None)
    folder.rmdir()
    assert not committed(offsets)
    assert not offsets.has_begun(FIRST)
    assert asyncio.run(offsets.query(FIRST)) == (5, False)
    folder.mkdir()
    assert committed(offsets)
    assert offsets.has_begun(FIRST)
    assert asyncio.run(offsets.query(FIRST)) == (5, True)
    assert kept(opened(folder / "offsets.json"), FIRST) == 5


def test_torn_file_gives_way_to_the_previous_generation(tmp_path: Path) -> None:
    path = tmp_path / "f" / "offsets.json"
    offsets = opened(path)
    offsets.begin(FIRST, QueueOffset(5), None)
    assert committed(offsets)
    offsets.update(FIRST, QueueOffset(6))
    assert committed(offsets)
    path.write_bytes(path.read_bytes()[:20])
    assert kept(opened(path), FIRST) == 5


def test_offsets_of_a_cancelled_commit_that_failed_are_written_later(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "f"
        blocking = InlineBlocking(lambda: 1.0, is_late=lambda: True)
        offsets = await open_local_offset_store(folder / "offsets.json", blocking, lambda _: 0)
        offsets.begin(FIRST, QueueOffset(5), None)
        folder.rmdir()
        commit = asyncio.ensure_future(offsets.commit())
        await asyncio.sleep(0.5)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        folder.mkdir()
        assert await offsets.commit()
        found = await open_local_offset_store(folder / "offsets.json", blocking, lambda _: 0)
        assert await found.query(FIRST) == (5, True)

    run_in_virtual_time(main())
