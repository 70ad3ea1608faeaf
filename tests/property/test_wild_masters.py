from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.examples import examples
from tests.support.replicas import log_of
from tests.support.stores import SMALL
from tests.support.toy_master import toy_master, toy_slave

ANY = st.integers(-(1 << 63), (1 << 63) - 1)
NEAR = st.sampled_from([-1, 0, 1, 2, 8, 234, 1170, 1171, 4096, 8192, 1 << 20])
NUMBERS = NEAR | ANY
DATA = st.binary(max_size=300) | st.sampled_from([bytes(8), bytes(8192), b"\xff" * 500])
PIECES = st.builds(
    replication.LogPiece,
    epoch=st.just(1) | NUMBERS,
    start=NUMBERS,
    data=DATA,
    is_checksummed=st.booleans(),
    confirm_offset=NUMBERS,
    log_start=NUMBERS,
    log_end=NUMBERS,
    damage=st.sampled_from(["", "", "", "rotten"]),
)
EPOCHS = st.builds(replication.Epoch, number=NUMBERS, start=NUMBERS)
ACCEPTED = st.builds(
    replication.FollowAccepted,
    status=st.none() | st.builds(common.Status, code=st.integers(0, 400)),
    store_id=st.sampled_from(["", "store", "other"]),
    epochs=st.lists(EPOCHS, max_size=3) | st.just([replication.Epoch(number=1)]),
    start=NUMBERS,
    cut=st.none() | st.builds(replication.FollowCut, keep_to=NUMBERS, starts_over=st.booleans()),
    log_file_bytes=st.just(SMALL.commit_log_file_bytes) | NUMBERS,
    master_role=st.sampled_from(["", "sync_master", "no role"]),
    in_sync_replicas=st.integers(-5, 5),
)


@settings(max_examples=examples(60))
@given(
    ACCEPTED | st.none(),
    st.lists(PIECES, max_size=4),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3),
)
def test_slave_survives_wild_master_and_keeps_its_log(
    says: replication.FollowAccepted | None,
    wild: list[replication.LogPiece],
    probes: list[tuple[int, int]],
) -> None:
    async def main() -> None:
        async with (
            MemoryNetwork(Random(1)) as network,
            toy_slave(network) as slave,
            toy_master(network) as master,
        ):
            master.write(5)
            await until(lambda: slave.store.safe_offset == master.store.max_physical)
            before = log_of(slave.files, slave.store.max_physical)
            master.says, master.wild, master.probes = says, wild, probes
            network.cut("m")
            hellos = len(master.hellos)
            await until(lambda: len(master.hellos) > hellos or bool(slave.cuts))
            for _ in range(3):
                network.cut("m")
                await until(lambda: True)
            slave.follower.status()
            assert log_of(slave.files, len(before)) == before
            assert slave.store.failure is None
            for cut, _ in slave.cuts:
                assert cut.keep_to >= 0
                assert cut.starts_over or cut.keep_to < len(before)

    run_in_virtual_time(main())
