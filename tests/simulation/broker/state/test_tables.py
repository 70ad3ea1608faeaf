"""What a broker does with tables that are not as it wrote them."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from ternmq_broker.state.accepted_tables import carry_out, plan_acceptance
from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.table_formats import (
    DELAYS,
    OFFSETS,
    REPLICATION,
    TIMER,
    TOPICS,
    StoredTables,
    find_tables,
    parse_table,
)
from ternmq_broker.state.table_generations import bad_path, config_folder
from ternmq_model.errors import RefusedError, StoreError
from ternmq_model.file_generations import previous_path
from ternmq_model.json_checksum import add_checksum
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_store.disk.state_file import read_whole, replace_file
from ternmq_store.log.log_notes import load_notes, save_notes
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, World, bodies, world
from tests.support.moments import MomentDisk
from tests.support.simulated_replicas import master_and_slave

ROOT: Final = Path("/broker")
FOLDER: Final = config_folder(ROOT)
OFFSETS_PATH: Final = FOLDER / OFFSETS.name
TOPICS_PATH: Final = FOLDER / TOPICS.name
SAVED_S: Final = 6
"""Offsets are on the disk after this time."""


async def commit(client: Client, offset: int) -> None:
    each = groups.QueueOffset(topic="A", queue_id=0, offset=offset)
    request = groups.CommitOffsetsRequest(group="G", offsets=[each])
    await client.call(service_methods.COMMIT_OFFSETS, request)


async def committed(client: Client) -> int:
    """Return how far the group is."""
    request = groups.QueryOffsetRequest(group="G", topic="A")
    reply: groups.QueryOffsetReply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.offset


def noted(files: MemoryFileSystem) -> tuple[str, ...]:
    """Return the names that the store's notes have."""
    return tuple(load_notes(files, ROOT, lambda _: None).tables)


def found(files: MemoryFileSystem) -> StoredTables:
    """Return the tables as the next start finds them."""
    return find_tables(files, ROOT, noted=noted(files), now_ms=0)


def flip(files: MemoryFileSystem, path: Path, text: str) -> None:
    """Flip a bit of the last digit of the first `text` in a file."""
    data = files.nodes[path].data
    at = data.tobytes().index(text.encode()) + len(text) - 1
    data[at] ^= 1


def remove(files: MemoryFileSystem, name: str) -> None:
    """Remove both generations of a table."""
    for path in (FOLDER / name, previous_path(FOLDER / name)):
        if files.exists(path):
            files.remove(path)


@asynccontextmanager
async def used() -> AsyncGenerator[World]:
    """Give a world whose broker has stopped, with a group at 6 of 8 messages, and at 4 before."""
    async with world() as around:
        async with around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            for number in range(8):
                await client.send("A", b"%d" % number, queue_id=0)
            for offset in (4, 6):
                await commit(client, offset)
                await asyncio.sleep(SAVED_S)
        yield around


async def offset_after_start(around: World) -> int:
    """Return how far the group is after a start."""
    async with around.broker() as broker:
        return await committed(await around.connect(broker))


async def refused(around: World) -> str:
    """Return why a start is refused."""
    with pytest.raises(StoreError) as error:
        await around.broker().__aenter__()
    assert not around.files.locks
    return str(error.value)


def test_flipped_digit_of_offset_sends_group_back_and_never_ahead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with used() as around:
            flip(around.files, OFFSETS_PATH, '"0": 6')
            assert await offset_after_start(around) == 4
            assert around.files.exists(bad_path(OFFSETS_PATH))
            assert await offset_after_start(around) == 4

    run_in_virtual_time(main())
    (line,) = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    for word in ("consumerOffset.json", "checksum differs", OFFSETS.older):
        assert word in line


@pytest.mark.parametrize(("name", "text"), [(OFFSETS.name, '"0": 4'), (TOPICS.name, '"perm": 6')])
def test_answered_change_is_in_either_generation(name: str, text: str) -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for _ in range(8):
                    await client.send("A", queue_id=0)
                await commit(client, 4)
            flip(around.files, FOLDER / name, text)
            assert await offset_after_start(around) == 4
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert len(bodies(await client.pull("A", 4))) == 4

    run_in_virtual_time(main())


def test_removed_offsets_give_way_to_generation_before(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with used() as around:
            around.files.remove(OFFSETS_PATH)
            assert await offset_after_start(around) == 4

    run_in_virtual_time(main())
    assert "consumerOffset.json is not there" in caplog.text


@pytest.mark.parametrize("name", [OFFSETS.name, TOPICS.name, TIMER.name, REPLICATION.name])
def test_start_is_refused_when_table_is_gone(name: str) -> None:
    async def main() -> None:
        async with used() as around:
            remove(around.files, name)
            reason = await refused(around)
            assert f"{FOLDER / name} is not there" in reason
            assert "ternmq store repair /broker --accept-tables" in reason
            assert await refused(around) == reason

    run_in_virtual_time(main())


def test_start_without_config_folder_names_every_table() -> None:
    async def main() -> None:
        async with used() as around:
            names = noted(around.files)
            assert len(names) == len(StoredTables._fields)
            for name in names:
                remove(around.files, name)
            reason = await refused(around)
            assert all(name in reason for name in names)

    run_in_virtual_time(main())


def test_start_is_refused_when_no_generation_is_right() -> None:
    async def main() -> None:
        async with used() as around:
            flip(around.files, OFFSETS_PATH, '"0": 6')
            flip(around.files, previous_path(OFFSETS_PATH), '"0": 4')
            reason = await refused(around)
            assert reason.count("checksum differs") == 2
            carry_out(around.files, ROOT, plan_acceptance(found(around.files)))
            assert await offset_after_start(around) == 7  # what the flipped file says
            assert all(each.is_current for each in found(around.files))

    run_in_virtual_time(main())


def test_illegible_table_that_is_accepted_is_lost_and_kept_aside() -> None:
    async def main() -> None:
        async with used() as around:
            for path in (OFFSETS_PATH, previous_path(OFFSETS_PATH)):
                around.files.open(path).resize(9)
            flip(around.files, TOPICS_PATH, '"perm": 6')  # its older generation is right
            await refused(around)
            plan = plan_acceptance(found(around.files))
            assert [each.found.format for each in plan] == [OFFSETS]
            assert "offsets of all groups" in plan[0].text
            carry_out(around.files, ROOT, plan)
            assert around.files.exists(bad_path(previous_path(OFFSETS_PATH)))
            assert await offset_after_start(around) == 0
            remove(around.files, OFFSETS.name)
            assert "consumerOffset.json is not there" in await refused(around)

    run_in_virtual_time(main())


@pytest.mark.parametrize("lost", ["table", "topic of older generation", "topic of backup"])
def test_topics_are_found_by_their_queues_and_keep_their_offsets(lost: str) -> None:
    async def main() -> None:
        async with used() as around:
            older = parse_table(read_whole(around.files, TOPICS_PATH))
            older["topicConfigTable"].pop("A")
            remove(around.files, TOPICS.name)
            if lost == "topic of older generation":
                data = write_json(older).encode()
                replace_file(around.files, previous_path(TOPICS_PATH), data, keep_previous=False)
            else:
                await refused(around)
                if lost == "table":
                    carry_out(around.files, ROOT, plan_acceptance(found(around.files)))
                else:
                    data = add_checksum(write_json(older))
                    replace_file(around.files, TOPICS_PATH, data, keep_previous=False)
            assert await offset_after_start(around) == 6

    run_in_virtual_time(main())


def test_start_without_offsets_that_were_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with used() as around:
            for path in (ROOT / "ternmq.store", ROOT / "ternmq.store.bak"):
                around.files.nodes.pop(path, None)
            remove(around.files, OFFSETS.name)
            await offset_after_start(around)

    run_in_virtual_time(main())
    assert "no offsets found, groups begin as new groups" in caplog.text


def as_older_version(files: MemoryFileSystem) -> None:
    """Change the directory as the version before checksums does, and move the group to 5.

    It keeps members that it does not know, and sorts them; it keeps no line about tables.
    """
    for name in [name for name in noted(files) if name != TIMER.name]:
        content = parse_json(read_whole(files, FOLDER / name).decode())
        if name == OFFSETS.name:
            content["offsetTable"]["A@G"]["0"] = 5
        replace_file(files, FOLDER / name, write_json(content).encode())
    timer = TIMER.strip(read_whole(files, FOLDER / TIMER.name))
    replace_file(files, FOLDER / TIMER.name, timer)
    notes = load_notes(files, ROOT, lambda _: None)
    for _ in range(2):
        save_notes(files, ROOT, replace(notes, tables=()))


def as_rocketmq(files: MemoryFileSystem) -> None:
    """Rewrite what RocketMQ saves when it stops, and move the group to 5."""
    for name in (OFFSETS.name, DELAYS.name):
        content = parse_table(read_whole(files, FOLDER / name))
        if name == OFFSETS.name:
            content["offsetTable"]["A@G"]["0"] = 5
        text = json.dumps(content, indent="\t", separators=(",", ":"))
        replace_file(files, FOLDER / name, text.encode())
    data = files.nodes[FOLDER / TIMER.name].data
    data[7] ^= 1  # through a map: the checksum behind the numbers stays


@pytest.mark.parametrize("rewrite", [as_older_version, as_rocketmq])
def test_table_that_other_program_wrote_is_taken_as_it_is(
    rewrite: Callable[[MemoryFileSystem], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with used() as around:
            for _ in range(2):
                rewrite(around.files)
                assert await offset_after_start(around) == 5
                assert all(each.is_current for each in found(around.files))
                assert len(noted(around.files)) == len(StoredTables._fields)

    with caplog.at_level(logging.INFO):
        run_in_virtual_time(main())
    assert "table without a checksum accepted" in caplog.text
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("rewrite", [as_older_version, as_rocketmq])
def test_place_to_look_from_is_forgotten_when_other_program_wrote(
    rewrite: Callable[[MemoryFileSystem], None],
) -> None:
    async def main() -> None:
        async with used() as around:
            for is_later in (False, True):
                table = found(around.files).delays.table
                assert table is not None
                assert bool(table.search_from) == is_later
                rewrite(around.files)
                await offset_after_start(around)

    run_in_virtual_time(main())


def test_table_that_older_version_lost_is_not_missed() -> None:
    async def main() -> None:
        async with used() as around:
            as_older_version(around.files)
            remove(around.files, DELAYS.name)
            assert await offset_after_start(around) == 5

    run_in_virtual_time(main())


def test_slave_takes_lost_tables_from_its_master(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            await commit(client, 7)
            await asyncio.sleep(SAVED_S)
            await cluster.stop("a-1")
            files = cluster.disks["a-1"]
            for name in (OFFSETS.name, TOPICS.name):
                remove(files, name)
            await cluster.stop("a")
            await cluster.start("a-1")
            slave = await cluster.connect("a-1")
            with pytest.raises(RefusedError, match="lost its offsets"):
                await committed(slave)
            await cluster.start("a")
            await asyncio.sleep(SAVED_S)
            assert await committed(slave) == 7
            await cluster.stop("a-1")
            assert parse_table(read_whole(files, OFFSETS_PATH))["offsetTable"]["A@G"]["0"] == 7

    run_in_virtual_time(main())
    assert "table lost, waiting for the table of the master" in caplog.text


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_start_after_any_moment_refuses_no_table(seed: int, *, loses_power: bool) -> None:
    looked = 0

    def look(number: int, left: PowerLossFileSystem) -> None:
        nonlocal looked
        looked += 1
        refusals = [each.refusal for each in found(left) if each.refusal]
        assert not refusals, f"step {number}: {refusals}"

    async def live(around: World) -> None:
        async with around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            await client.send("A", queue_id=0)
            await commit(client, 1)
            await asyncio.sleep(SAVED_S)

    async def main() -> None:
        async with world() as around:
            around.files = disk = MomentDisk(Random(seed), look, loses_power=loses_power)
            disk.watched = range(1 << 30)
            await live(around)
            flip(disk, OFFSETS_PATH, '"0": 1')
            disk.nodes[OFFSETS_PATH].data = disk.nodes[OFFSETS_PATH].data.copy()
            disk.open(OFFSETS_PATH).sync()
            await live(around)

    run_in_virtual_time(main())
    assert looked > 200


def test_names_that_cannot_be_make_no_table_a_damaged_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = {
        "topics.json": ("topicConfigTable", "my topic", {"perm": 6}),
        "subscriptionGroup.json": ("subscriptionGroupTable", "my group", {"retryMaxTimes": 3}),
        "consumerOffset.json": ("offsetTable", "A@my group", {"0": 5}),
    }

    def table(around: World, name: str) -> Any:
        data = read_whole(around.files, FOLDER / name)
        assert data is not None
        return parse_table(data)

    async def main() -> None:
        async with used() as around:
            for name, (rows, key, entry) in odd.items():
                content = table(around, name)
                content[rows][key] = entry
                replace_file(around.files, FOLDER / name, write_json(content).encode())
            assert await offset_after_start(around) == 6
            for name, (rows, key, entry) in odd.items():
                assert table(around, name)[rows][key] == entry
                assert not around.files.exists(bad_path(FOLDER / name))

    run_in_virtual_time(main())
    lines = [each.message for each in caplog.records if "retained and not used" in each.message]
    assert [next(name for name in odd if name in line) for line in lines] == list(odd)
