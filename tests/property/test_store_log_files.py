"""Stores whose log has files of a wrong length, too many, too few, or others': what is served."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.inspection.recovery_preview import preview_findings, preview_recovery
from ternmq_store.message_store import MessageStore
from ternmq_store.opened_files import RecoveryAction
from ternmq_store.recovery.recovery_decisions import UndecidedState, UndecidedStore
from ternmq_testing.memory.memory_files import MemoryFileSystem, Node
from tests.support.damage import CONFIG, Key, copied, ends, filled, readable
from tests.support.records import batch_of, record
from tests.support.replicas import follow, open_replica
from tests.support.stores import ROOT, append, open_store, settle, whole

FOLDER = commit_log_folder(ROOT)
FILE_BYTES = CONFIG.commit_log_file_bytes
LAST = 2


def path_of(number: int) -> Path:
    return FOLDER / file_name(number * FILE_BYTES)


def with_length(files: MemoryFileSystem, number: int, length: int, fill: int = 0xA5) -> None:
    """Cut a file of the log, or lengthen it by bytes that are no zeros."""
    data = files.nodes[path_of(number)].data
    longer = bytes((fill,)) * max(length - len(data), 0)
    put(files, path_of(number), data.tobytes()[:length] + longer)


def put(files: MemoryFileSystem, path: Path, data: bytes) -> None:
    """Make `data` the content of a file."""
    files.nodes[path] = Node()
    files.open(path).write(0, data)


def sound(messages: dict[Key, bytes], bad: range) -> dict[Key, bytes]:
    """Return the messages whose records have no byte in `bad`."""

    def is_sound(data: bytes) -> bool:
        start = whole(data).header.physical_offset
        return start + len(data) <= bad.start or start >= bad.stop

    return {key: data for key, data in messages.items() if is_sound(data)}


def expected(is_clean: bool) -> dict[Key, bytes]:
    """Return all messages of the store before it is damaged."""
    return readable(open_store(filled(is_clean=is_clean), config=CONFIG))


def check_served(files: MemoryFileSystem, served: dict[Key, bytes]) -> MessageStore:
    """Open a store, compare what it serves, take more, and open it again."""
    numbers = ends(open_store(filled(is_clean=True), config=CONFIG))
    store: MessageStore | None = None
    for _ in range(2):
        store = open_store(files, config=CONFIG)
        assert readable(store).items() >= served.items()
        assert all(ends(store)[key] >= number for key, number in numbers.items())
        new = append(store, batch_of(record("A", 0, b"new"))).queue_offsets
        settle(store)
        assert ("A", 0, int(new[0])) in readable(store)
        store.close()
    assert store is not None
    return store


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", range(LAST + 1))
@pytest.mark.parametrize("surplus", [1, 20, FILE_BYTES])
def test_bytes_behind_a_file_are_set_aside(
    number: int, surplus: int, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = filled(is_clean=is_clean)
    with_length(files, number, FILE_BYTES + surplus)
    store = check_served(files, expected(is_clean))
    assert not store.report.findings
    aside = ROOT / "aside" / f"{path_of(number).name}.beyond"
    assert files.nodes[aside].data.tobytes() == b"\xa5" * surplus
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    for word in (str(path_of(number)), f"position={(number + 1) * FILE_BYTES}", str(aside)):
        assert word in line
    assert f"`ternmq store repair {ROOT} --leftovers`" in line


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", range(LAST))
@pytest.mark.parametrize("length", [None, 0, 1, 2000, FILE_BYTES - 1])
def test_missing_bytes_cost_their_records_alone(
    number: int, length: int | None, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if number == 0 and length is None:
        return  # the log begins later then
    files = filled(is_clean=is_clean)
    if length is None:
        files.remove(path_of(number))
    else:
        with_length(files, number, length)
    bad = range(number * FILE_BYTES + (length or 0), (number + 1) * FILE_BYTES)
    check_served(files, sound(expected(is_clean), bad))
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert any(f"file={path_of(number)} position={bad.start} " in line for line in lines)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("length", [None, 0, 1, 700])
def test_lost_end_of_the_log_costs_its_records_alone(length: int | None, is_clean: bool) -> None:
    files = filled(is_clean=is_clean)
    if length is None:
        files.remove(path_of(LAST))
    else:
        with_length(files, LAST, length)
    bad = range(LAST * FILE_BYTES + (length or 0), (LAST + 1) * FILE_BYTES)
    check_served(files, sound(expected(is_clean), bad))


def test_power_loss_amid_a_repair_repeats_it() -> None:
    files = filled(is_clean=True)
    with_length(files, 0, FILE_BYTES + 7)
    with_length(files, 1, 2000)
    served = sound(expected(is_clean=True), range(FILE_BYTES + 2000, 2 * FILE_BYTES))

    class Ending(MemoryFileSystem):
        left = 0

        def happen(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    for moment in range(1, 40):
        again = Ending()
        again.__dict__.update(copied(files).__dict__)
        again.left = moment
        with pytest.raises(KeyboardInterrupt):
            open_store(again, config=CONFIG)
        left = copied(again)
        store = check_served(left, served)
        assert store.report.was_clean
        kept = [path for path in left.nodes if path.parent == ROOT / "aside"]
        assert kept
        for path in kept:
            assert path.suffix == ".tmp" or left.nodes[path].data.tobytes() == b"\xa5" * 7


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("length", [None, 0, 700, 2000])
@pytest.mark.parametrize("numbers", [(0,), (1,), (0, 1)])
def test_file_that_is_put_back_is_served_again(
    numbers: Sequence[int], length: int | None, is_clean: bool
) -> None:
    if 0 in numbers and length is None:
        return  # the log begins later then
    files = filled(is_clean=is_clean)
    contents = [files.nodes[path_of(number)].data.tobytes() for number in numbers]
    for number in numbers:
        if length is None:
            files.remove(path_of(number))
        else:
            with_length(files, number, length)
    store = open_store(files, config=CONFIG)
    assert store.session.quarantine
    store.close()
    for number, content in zip(numbers, contents, strict=True):
        put(files, path_of(number), content)
        store = open_store(files, config=CONFIG)
        store.close()
    assert not store.session.quarantine
    check_served(files, expected(is_clean))


def test_record_before_a_lost_end_is_served_in_spite_of_other_damage() -> None:
    files = filled(is_clean=True)
    first = min(whole(data).header.total_bytes for data in expected(is_clean=True).values())
    with_length(files, 1, 2000)
    files.open(path_of(1)).write(0, b"\xff" * first)
    bad = [range(FILE_BYTES, FILE_BYTES + first), range(FILE_BYTES + 2000, 2 * FILE_BYTES)]
    served = expected(is_clean=True)
    for each in bad:
        served = sound(served, each)
    check_served(files, served)


def strange(at: int, claimed: int) -> bytes:
    """Return the content of a file at `at` with a record that belongs to `claimed`."""
    other = MemoryFileSystem()
    store = open_store(other, config=CONFIG)
    append(store, batch_of(*(record("X", 0, bytes(700)) for _ in range(10))))
    settle(store)
    store.close()
    data = bytearray(other.nodes[path_of(1)].data.tobytes())
    assert claimed != at
    data[28:36] = claimed.to_bytes(8, "big")
    return bytes(data)


@pytest.mark.parametrize("is_clean", [True, False])
def test_files_of_another_log_are_set_aside(is_clean: bool) -> None:
    files = filled(is_clean=is_clean)
    far, odd = FOLDER / file_name(90 * FILE_BYTES), FOLDER / file_name(FILE_BYTES + 5)
    put(files, far, b"far" + bytes(FILE_BYTES - 3))
    put(files, odd, b"odd")
    put(files, FOLDER / "notes.txt", b"mine")
    check_served(files, expected(is_clean))
    assert files.nodes[ROOT / "aside" / far.name].data.tobytes()[:3] == b"far"
    assert files.nodes[ROOT / "aside" / odd.name].data.tobytes() == b"odd"
    assert FOLDER / "notes.txt" in files.nodes


def test_foreign_content_under_a_name_of_the_log_is_set_aside() -> None:
    files = filled(is_clean=True)
    content = strange(FILE_BYTES, 77 * FILE_BYTES)
    content = content[:36] + bytes(FILE_BYTES - 36)
    put(files, path_of(1), content)
    bad = range(FILE_BYTES, 2 * FILE_BYTES)
    check_served(files, sound(expected(is_clean=True), bad))
    assert files.nodes[ROOT / "aside" / path_of(1).name].data.tobytes() == content


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "lengths", [(1, 1, 1), (1, 1, -1), (-1, -1, -1), (512, 512, 512), (FILE_BYTES,) * 3]
)
@pytest.mark.parametrize("fill", [0, 0xA5])
def test_noted_length_decides_whatever_lengths_files_have(
    lengths: Sequence[int], fill: int, is_clean: bool
) -> None:
    files = filled(is_clean=is_clean)
    for number, more in enumerate(lengths):
        with_length(files, number, FILE_BYTES + more, fill)
    store = check_served(files, expected(is_clean))
    assert store.log_file_bytes == FILE_BYTES


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("at", [5, FILE_BYTES])
def test_stray_beside_the_only_file_is_set_aside(at: int, is_clean: bool) -> None:
    files = filled(is_clean=is_clean, count=9)
    served = readable(open_store(filled(is_clean=is_clean, count=9), config=CONFIG))
    put(files, FOLDER / file_name(at), strange(FILE_BYTES, 77 * FILE_BYTES)[:36])
    assert readable(open_store(files, config=CONFIG)) == served
    assert [path.name for path in files.nodes if path.parent == ROOT / "aside"] == [file_name(at)]


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("to", [LAST, LAST + 1])
def test_copy_of_another_file_is_set_aside(to: int, is_noted: bool) -> None:
    files = filled(is_clean=True)
    if not is_noted:
        forget(files)
    content = files.nodes[path_of(1)].data.tobytes()
    put(files, path_of(to), content)
    bad = range(to * FILE_BYTES, (to + 1) * FILE_BYTES)
    check_served(files, sound(expected(is_clean=True), bad))
    assert files.nodes[ROOT / "aside" / path_of(to).name].data.tobytes() == content


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("number", range(LAST + 1))
@pytest.mark.parametrize("to", [1, FILE_BYTES + 1, 7 * FILE_BYTES])
def test_renamed_file_gets_its_name_back(
    to: int, number: int, is_noted: bool, is_clean: bool
) -> None:
    files = filled(is_clean=is_clean)
    if not is_noted:
        forget(files)
    files.nodes[FOLDER / file_name(to)] = files.nodes.pop(path_of(number))
    store = check_served(files, expected(is_clean))
    assert store.report.was_clean
    assert (ROOT / "aside" / file_name(to)) not in files.nodes


def test_file_that_holds_the_next_one_too_is_not_cut() -> None:
    files = filled(is_clean=True)
    content = files.nodes[path_of(0)].data.tobytes() + files.nodes[path_of(1)].data.tobytes()
    put(files, path_of(0), content)
    with_next = copied(files)
    check_served(with_next, expected(is_clean=True))
    files.remove(path_of(1))
    with pytest.raises(UndecidedStore) as caught:
        open_store(files, config=CONFIG)
    assert caught.value.choice.state is UndecidedState.FILE_LENGTH
    assert len(caught.value.choice.ways) == 2


def test_log_without_any_file_of_its_own_is_refused() -> None:
    files = filled(is_clean=True)
    for number in range(LAST + 1):
        files.remove(path_of(number))
    put(files, FOLDER / file_name(5), b"odd")
    with pytest.raises(UndecidedStore, match="Put the files of the log back"):
        open_store(files, config=CONFIG)


def swap(files: MemoryFileSystem) -> None:
    files.nodes[path_of(0)], files.nodes[path_of(1)] = (
        files.nodes[path_of(1)],
        files.nodes[path_of(0)],
    )


def forget_and_remove(files: MemoryFileSystem) -> None:
    forget(files)
    files.remove(path_of(1))


def forget(files: MemoryFileSystem) -> None:
    for name in ("ternmq.store", "ternmq.store.bak"):
        files.nodes.pop(ROOT / name, None)


@pytest.mark.parametrize("surplus", [1, FILE_BYTES])
def test_length_of_the_first_file_is_noted_before_it_is_made(surplus: int) -> None:
    files = killed_at_once(9)
    with_length(files, 0, FILE_BYTES + surplus)
    store = open_store(files, config=replace(CONFIG, commit_log_file_bytes=1 << 20))
    assert (store.log_file_bytes, len(readable(store))) == (FILE_BYTES, 9)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("change", [1, -1])
def test_setting_tells_the_length_where_nothing_is_noted(change: int, is_clean: bool) -> None:
    files = filled(is_clean=is_clean, count=9)
    forget(files)
    with_length(files, 0, FILE_BYTES + change)
    store = open_store(files, config=CONFIG)
    assert (store.log_file_bytes, len(readable(store))) == (FILE_BYTES, 9)


def killed_at_once(count: int) -> MemoryFileSystem:
    """Return the files of a store that was killed before anything of its messages was noted."""
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for number in range(count):
        append(store, batch_of(record("A", number % 2, bytes((number + 1,)) * 60)))
    settle(store)
    files.locks.clear()
    return files


@pytest.mark.parametrize("length", [None, 0, 900])
@pytest.mark.parametrize("number", range(4))
def test_killed_store_keeps_what_was_never_noted(number: int, length: int | None) -> None:
    before = open_store(killed_at_once(70), config=CONFIG)
    expected, numbers = readable(before), ends(before)
    files = killed_at_once(70)
    assert path_of(3) in files.nodes
    assert path_of(4) not in files.nodes
    bad = range(number * FILE_BYTES + (length or 0), (number + 1) * FILE_BYTES)
    if length is None:
        files.remove(path_of(number))
    else:
        with_length(files, number, length)
    store = open_store(files, config=CONFIG)
    assert readable(store) == sound(expected, bad)
    assert ends(store) == numbers
    assert not [path for path in files.nodes if path.parent == ROOT / "aside"]


def test_killed_store_keeps_what_a_unit_confirms_behind_a_long_gap() -> None:
    before = open_store(killed_at_once(150), config=CONFIG)
    expected, numbers = readable(before), ends(before)
    files = killed_at_once(150)
    last = max(path for path in files.nodes if path.parent == FOLDER)
    gone = range(FILE_BYTES, int(last.name))
    assert len(gone) > 4 * FILE_BYTES
    for base in gone[::FILE_BYTES]:
        files.remove(FOLDER / file_name(base))
    store = open_store(files, config=CONFIG)
    assert (readable(store), ends(store)) == (sound(expected, gone), numbers)


def test_file_far_behind_a_killed_log_waits_for_a_decision() -> None:
    files, other = filled(is_clean=False), filled(is_clean=True, count=160)
    far = max(path for path in other.nodes if path.parent == FOLDER)
    assert int(far.name) > (LAST + 3) * FILE_BYTES
    put(files, far, other.nodes[far].data.tobytes())
    with pytest.raises(UndecidedStore, match="--fill-gaps") as caught:
        open_store(copied(files), config=CONFIG)
    assert caught.value.choice.state is UndecidedState.MISSING_FILE
    assert preview_recovery(files, ROOT, CONFIG).choice == caught.value.choice


@pytest.mark.parametrize("at", [LAST + 2, 3000])
def test_records_with_wrong_checksums_take_no_file_over_after_a_crash(at: int) -> None:
    files, far = filled(is_clean=False), FOLDER / file_name(at * FILE_BYTES)
    content = bytearray(files.nodes[path_of(0)].data.tobytes())
    for data in expected(is_clean=False).values():
        start = whole(data).header.physical_offset
        if start + len(data) <= FILE_BYTES:
            content[start + 28 : start + 36] = (at * FILE_BYTES + start).to_bytes(8, "big")
    put(files, far, bytes(content))
    numbers = ends(open_store(filled(is_clean=False), config=CONFIG))
    store = open_store(files, config=CONFIG)
    assert (readable(store), ends(store)) == (expected(is_clean=False), numbers)
    assert ROOT / "aside" / far.name in files.nodes


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("gone", "reason"), [((0,), "noted to begin at 0"), (range(LAST + 1), "up to ")]
)
def test_lost_file_at_either_end_is_an_error(
    gone: Sequence[int], reason: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = filled(is_clean=is_clean)
    for number in gone:
        files.remove(path_of(number))
    rehearsal = preview_recovery(files, ROOT, CONFIG)
    told = [one.text for one in preview_findings(rehearsal) if one.file == path_of(0)]
    assert any(reason in text for text in told)
    caplog.clear()
    open_store(files, config=CONFIG)
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    (line,) = [one for one in lines if f"file={path_of(0)} position=0 " in one]
    assert reason in line


def test_torn_end_of_a_killed_store_is_cut_and_its_numbers_are_given_again() -> None:
    files = killed_at_once(70)
    put(files, path_of(3), bytes(FILE_BYTES))
    store = open_store(files, config=CONFIG)
    served = readable(store)
    assert served == sound(
        readable(open_store(killed_at_once(70), config=CONFIG)),
        range(3 * FILE_BYTES, 4 * FILE_BYTES),
    )
    assert sum(ends(store).values()) == len(served)


@pytest.mark.parametrize("damage", [swap, forget_and_remove])
def test_unclear_log_is_refused_and_left_as_it_was(
    damage: Callable[[MemoryFileSystem], None],
) -> None:
    files = filled(is_clean=True)
    damage(files)
    before = {path: node.data.tobytes() for path, node in files.nodes.items()}
    with pytest.raises(UndecidedStore, match="ternmq store repair") as caught:
        open_store(files, config=CONFIG)
    files.nodes.pop(ROOT / "lock", None)
    assert {path: node.data.tobytes() for path, node in files.nodes.items()} == before
    assert preview_recovery(files, ROOT, CONFIG).choice == caught.value.choice


def test_slave_serves_around_a_missing_file_and_hands_it_on() -> None:
    files = filled(is_clean=True)
    files.remove(path_of(1))
    served = sound(expected(is_clean=True), range(FILE_BYTES, 2 * FILE_BYTES))
    limit = PhysicalOffset(2 * FILE_BYTES + 900)
    slave = open_replica(files, serve_to=limit, config=CONFIG)
    assert slave.confirm_offset <= limit
    found = readable(slave)
    assert found
    assert found.items() <= served.items()
    whats = {one.what for one in slave.report.findings}
    assert RecoveryAction.QUARANTINED in whats
    end = slave.max_physical
    slave.close()
    master, copy = open_store(files, config=CONFIG), open_store(MemoryFileSystem(), config=CONFIG)
    follow(master, copy)
    assert copy.max_physical == master.max_physical == end
    settle(copy)
    assert (
        readable(copy).items() >= {k: v for k, v in served.items() if k in readable(master)}.items()
    )
