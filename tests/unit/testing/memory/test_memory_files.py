from pathlib import Path
from random import Random

from ternmq_testing.memory.memory_files import PowerLossFileSystem

FOLDER = Path("/data")
SYNCED = b"synced"


def after_power_loss(files: PowerLossFileSystem) -> bytes:
    left = files.lose_power(Random(0), lucky=0.0)
    return left.nodes[FOLDER / "f"].data.tobytes()


def test_power_loss_keeps_what_was_synced_of_a_file_that_changes_its_length() -> None:
    files = PowerLossFileSystem()
    files.make_folder(FOLDER)
    file = files.open(FOLDER / "f", create=True)
    files.sync_folder(FOLDER)
    file.resize(1000)
    file.write(100, SYNCED)
    file.sync()
    file.write(500, b"lost")
    expected = bytes(100) + SYNCED + bytes(1000 - 100 - len(SYNCED))
    assert after_power_loss(files) == expected
    file.resize(50)
    file.resize(1000)
    file.sync()  # the length is that of the disk, whose old content is gone
    assert after_power_loss(files) == bytes(1000)


def test_power_loss_keeps_what_was_synced_of_a_mapped_file() -> None:
    files = PowerLossFileSystem()
    files.make_folder(FOLDER)
    file = files.open(FOLDER / "f", create=True)
    files.sync_folder(FOLDER)
    file.resize(1000)
    region = file.map()
    region.view[900:906] = SYNCED
    file.sync()
    region.view[906:910] = b"lost"
    assert after_power_loss(files) == bytes(900) + SYNCED + bytes(94)
    region.close()
    # What the next process maps is known to be whole.
    left = files.restart()
    left.open(FOLDER / "f").sync()
    assert after_power_loss(left)[900:910] == SYNCED + b"lost"
