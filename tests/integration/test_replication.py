"""A master and its slave as processes of their own: what sends are answered, and the same bytes."""

import asyncio
import signal
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ternmq import Message, Producer, ProducerConfig, SendStatus
from ternmq_model.errors import TernError
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.service_methods import FOLLOW
from tests.support.brokers import connected
from tests.support.followed import FollowStream
from tests.support.processes import ServiceProcess, running_broker, running_nameserver

FILE_BYTES = 4 << 20
SETTINGS = (f"store.commit_log_file_bytes={FILE_BYTES}", "store.index_slots=10000")
PATIENT = ProducerConfig(send_timeout_s=60)


@dataclass(frozen=True, slots=True)
class Members:
    """A NameServer, a SYNC_MASTER, and the folders."""

    folder: Path
    nameserver: str
    master: str

    def data(self, member: str) -> Path:
        """Return a member's data directory."""
        return self.folder / member / "data"

    def slave(self) -> ServiceProcess:
        """Start the slave; it may be killed."""
        return member(self.folder / "slave", self.nameserver, "slave", 1)

    def log(self, member: str) -> bytes:
        """Return a member's log, without what is not written yet."""
        files = sorted((self.data(member) / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files if file.name.isdigit())


def member(folder: Path, nameserver: str, role: str, broker_id: int) -> ServiceProcess:
    """Start a member of broker name "a"."""
    words = ("--role", role, "--broker-id", broker_id)
    return running_broker(folder, nameserver, *words, name="a", settings=SETTINGS)


@pytest.fixture
def members(tmp_path: Path) -> Generator[Members]:
    """Give a master without a slave."""
    with (
        running_nameserver(tmp_path / "ns") as names,
        member(tmp_path / "master", names.nameserver, "sync_master", 0) as master,
    ):
        yield Members(tmp_path, names.nameserver, master.broker)


async def ended(stream: FollowStream) -> None:
    """Read whatever comes until the stream is over."""
    while await stream.read() is not None:
        pass


async def send(producer: Producer, count: int = 1) -> set[SendStatus]:
    """Send messages; return what was answered."""
    sends = [producer.send(Message("T", b"%d" % number * 500)) for number in range(count)]
    return {result.status for result in await asyncio.gather(*sends)}


def test_slave_is_waited_for_only_while_it_is_in_sync(
    members: Members,
) -> None:
    async def main() -> None:
        async with (
            connected(members.master) as master,
            Producer("g", nameserver=members.nameserver, config=PATIENT) as producer,
        ):
            assert await send(producer) == {SendStatus.SLAVE_NOT_AVAILABLE}
            with members.slave() as slave:
                await master.until_in_sync(2)
                assert await send(producer, 2000) == {SendStatus.SEND_OK}
                slave.process.send_signal(signal.SIGSTOP)
                paused = await send(producer, 20)
                assert paused <= {
                    SendStatus.FLUSH_SLAVE_TIMEOUT,
                    SendStatus.SLAVE_NOT_AVAILABLE,
                }
                assert await send(producer, 20) == {SendStatus.SLAVE_NOT_AVAILABLE}
                slave.process.send_signal(signal.SIGCONT)
                await master.until_in_sync(2)
                assert await send(producer, 20) == {SendStatus.SEND_OK}
                slave.kill()
                assert await send(producer, 2000) <= {
                    SendStatus.SLAVE_NOT_AVAILABLE,
                    SendStatus.SEND_OK,
                }
            with members.slave():
                await master.until_in_sync(2)
                assert await send(producer, 20) == {SendStatus.SEND_OK}
                end = (await master.replication_status()).confirm_offset
                ours, theirs = members.log("master"), members.log("slave")
                assert end > FILE_BYTES // 2
                assert ours[:end] == theirs[:end]

    asyncio.run(main())


@pytest.mark.parametrize("safe", [1 << 62, 1 << 20, -5])
def test_forged_slave_confirms_nothing(members: Members, safe: int) -> None:
    async def main() -> None:
        async with connected(members.master) as master:
            stream = master.connection.open(FOLLOW)
            hello = replication.FollowHello(
                cluster="DefaultCluster", broker_name="a", broker_id=1, incarnation="forged"
            )
            await stream.write(replication.FollowRequest(hello=hello))
            accepted = await stream.read()
            assert accepted is not None
            epoch = accepted.accepted.epochs[-1].number
            ack = replication.FollowAck(epoch=epoch, safe_offset=safe, appended_offset=1 << 62)
            await stream.write(replication.FollowRequest(ack=ack))
            with pytest.raises(TernError, match="slave 1"):
                await ended(stream)
            status = await master.replication_status()
            assert not status.followers
            assert not status.is_fenced
            async with Producer("g", nameserver=members.nameserver) as producer:
                assert await send(producer) == {SendStatus.SLAVE_NOT_AVAILABLE}

    asyncio.run(main())
