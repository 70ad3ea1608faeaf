"""The in-memory network: hosts, faults, delays. A contract test has what it shares with gRPC."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import (
    CannotListen,
    ConnectionLost,
    RefusedError,
    RequestTimedOut,
    Unreachable,
)
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.rpc import Call, Handler, ServerStream, stream, unary
from ternmq_remoting.service_methods import LIST_TOPICS, SESSION
from ternmq_testing.memory.memory_network import Loss, MemoryNetwork, random_loss
from ternmq_testing.time.virtual_time import run_in_virtual_time

ANY_PORT = Address("a", 0)


class Topics:
    """Answers ListTopics with the cluster it is asked for, and counts."""

    def __init__(self, work_s: float = 0.0) -> None:
        self.served = 0
        self.cancelled = 0
        self._work_s = work_s

    def handlers(self) -> Sequence[Handler]:
        return [unary(LIST_TOPICS, self.list_topics), stream(SESSION, self.session)]

    async def list_topics(
        self, request: nameserver.ListTopicsRequest, _call: Call
    ) -> nameserver.ListTopicsReply:
        try:
            await asyncio.sleep(self._work_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.served += 1
        return nameserver.ListTopicsReply(topics=[request.cluster])

    async def session(
        self, session: ServerStream[groups.SessionRequest, groups.SessionReply], _call: Call
    ) -> None:
        """Echo each client id as a group whose members changed."""
        try:
            while (request := await session.read()) is not None:
                changed = groups.MembersChanged(group=request.hello.client_id)
                await session.write(groups.SessionReply(members_changed=changed))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def hello(client_id: str) -> groups.SessionRequest:
    return groups.SessionRequest(hello=groups.Hello(client_id=client_id))


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def started() -> None:
        await main()

    run_in_virtual_time(started())


def test_hosts_dial_each_other_by_name_and_themselves_by_loopback() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            a, b = network.host("a"), network.host("b")
            async with (
                a.serve(Topics().handlers(), Address("0.0.0.0", 9876)),
                a.serve(Topics().handlers(), Address("127.0.0.1", 9877)),
            ):
                await b.connect([Address("a", 9876)])
                await a.connect([Address("localhost", 9876)])
                await a.connect([Address("127.0.0.1", 9877)])
                with pytest.raises(Unreachable, match="9876: connection refused"):
                    await b.connect([Address("127.0.0.1", 9876)])
                with pytest.raises(Unreachable, match="a:9877: connection refused"):
                    await b.connect([Address("a", 9877)])

    run(main)


def test_taken_or_foreign_address_cannot_be_bound() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            host = network.host("a")
            async with host.serve([], ANY_PORT) as server:
                with pytest.raises(CannotListen, match="already in use"):
                    await host.serve([], server.address).__aenter__()
                with pytest.raises(CannotListen, match="not an address of host a"):
                    await host.serve([], Address("b", 0)).__aenter__()
            async with host.serve([], server.address):
                pass

    run(main)


def test_lost_request_times_out_undone_and_a_lost_reply_times_out_done() -> None:
    async def main() -> None:
        service = Topics()
        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("a").serve(service.handlers(), ANY_PORT) as server,
        ):
            connection = await network.host("b").connect([server.address])
            request = nameserver.ListTopicsRequest(cluster="c")
            for loss, served in ((Loss.REQUEST, 0), (Loss.REPLY, 1)):

                def lose(_path: str, loss: Loss = loss) -> Loss:
                    return loss

                network.loss = lose
                began_s = asyncio.get_running_loop().time()
                with pytest.raises(RequestTimedOut):
                    await connection.call(LIST_TOPICS, request, timeout_s=3)
                assert asyncio.get_running_loop().time() - began_s == pytest.approx(3)
                assert service.served == served
            network.loss = random_loss(Random(1), request=0.0, reply=0.0)
            reply = await connection.call(LIST_TOPICS, request, timeout_s=3)
            assert list(reply.topics) == ["c"]

    run(main)


def test_call_takes_two_latencies_and_a_stream_keeps_its_order() -> None:
    async def main() -> None:
        async with (
            MemoryNetwork(Random(7), latency_s=lambda random: random.uniform(0.1, 1.0)) as network,
            network.host("a").serve(Topics().handlers(), ANY_PORT) as server,
        ):
            connection = await network.host("b").connect([server.address], timeout_s=5)
            began_s = asyncio.get_running_loop().time()
            await connection.call(LIST_TOPICS, nameserver.ListTopicsRequest(), timeout_s=5)
            assert 0.2 <= asyncio.get_running_loop().time() - began_s <= 2.0

            session = connection.open(SESSION)
            sent = [str(number) for number in range(12)]
            for client_id in sent:
                await session.write(hello(client_id))
            await session.finish()
            got: list[str] = []
            while (reply := await session.read()) is not None:
                got.append(reply.members_changed.group)
            assert got == sent

    run(main)


def test_write_waits_while_the_peer_does_not_read() -> None:
    async def main() -> None:
        async with (
            MemoryNetwork(Random(1), stream_messages_max=4) as network,
            network.host("a").serve(Topics().handlers(), ANY_PORT) as server,
        ):
            connection = await network.host("b").connect([server.address])
            session = connection.open(SESSION)
            written = 0
            # 4 replies unread, one the handler waits to write, 4 requests unread.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while True:
                        await session.write(hello(str(written)))
                        written += 1
            assert written == 4 + 1 + 4

    run(main)


def test_partition_breaks_running_calls_and_refuses_new_ones_until_healed() -> None:
    async def main() -> None:
        service = Topics(work_s=1)
        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("a").serve(service.handlers(), ANY_PORT) as server,
            asyncio.TaskGroup() as tasks,
        ):
            b, c = network.host("b"), network.host("c")
            connection = await b.connect([server.address])
            bystander = (await c.connect([server.address])).open(SESSION)
            session = connection.open(SESSION)
            await session.write(hello("one"))
            await session.read()
            request = nameserver.ListTopicsRequest()
            calling = tasks.create_task(
                outcome_of(connection.call(LIST_TOPICS, request, timeout_s=5))
            )
            await asyncio.sleep(0.5)

            network.partition("b", "a")
            assert isinstance(await calling, ConnectionLost)
            with pytest.raises(ConnectionLost):
                await session.read()
            with pytest.raises(Unreachable):
                await connection.call(LIST_TOPICS, request, timeout_s=5)
            with pytest.raises(Unreachable):
                await b.connect([server.address])
            with pytest.raises(Unreachable):
                await connection.open(SESSION).read()
            assert service.cancelled == 2
            await bystander.write(hello("two"))
            assert (await bystander.read()) is not None

            network.heal()
            await connection.call(LIST_TOPICS, request, timeout_s=5)
            network.cut("b")
            await connection.call(LIST_TOPICS, request, timeout_s=5)

    run(main)


async def outcome_of(call: Awaitable[object]) -> object:
    try:
        return await call
    except (ConnectionLost, RequestTimedOut) as error:
        return error


def test_handler_bug_is_raised_by_the_network_block() -> None:
    async def bug(
        _request: nameserver.ListTopicsRequest, _call: Call
    ) -> nameserver.ListTopicsReply:
        raise ZeroDivisionError

    async def main() -> None:
        async with (
            MemoryNetwork(Random(1)) as network,
            network.serve([unary(LIST_TOPICS, bug)], Address("127.0.0.1", 0)) as server,
        ):
            connection = await network.connect([server.address])
            with pytest.raises(RefusedError, match="SYSTEM_ERROR"):
                await connection.call(LIST_TOPICS, nameserver.ListTopicsRequest(), timeout_s=1)

    with pytest.raises(ExceptionGroup, match="handlers crashed") as caught:
        run(main)
    assert caught.value.subgroup(ZeroDivisionError) is not None


def test_same_seed_gives_the_same_run() -> None:
    def times(seed: int) -> list[float]:
        taken: list[float] = []

        async def main() -> None:
            random = Random(seed)
            async with (
                MemoryNetwork(random, latency_s=lambda random: random.random()) as network,
                network.host("a").serve(Topics().handlers(), ANY_PORT) as server,
            ):
                network.loss = random_loss(random, request=0.2, reply=0.2)
                connection = await network.host("b").connect([server.address], timeout_s=3)
                for _ in range(20):
                    request = nameserver.ListTopicsRequest()
                    await outcome_of(connection.call(LIST_TOPICS, request, timeout_s=1.5))
                    taken.append(asyncio.get_running_loop().time())

        run(main)
        return taken

    assert times(5) == times(5)
    assert times(5) != times(6)


@pytest.mark.parametrize(("lost", "is_served"), [(("b", "a"), False), (("a", "b"), True)])
def test_call_in_a_one_way_partition_loses_its_request_or_its_reply(
    lost: tuple[str, str], *, is_served: bool
) -> None:
    async def main() -> None:
        topics = Topics()
        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("a").serve(topics.handlers(), ANY_PORT) as server,
        ):
            connection = await network.host("b").connect([server.address])
            network.partition(*lost, one_way=True)
            with pytest.raises(RequestTimedOut):
                await connection.call(LIST_TOPICS, nameserver.ListTopicsRequest(), timeout_s=2)
            assert bool(topics.served) == is_served
            with pytest.raises(Unreachable):
                await network.host("b").connect([server.address])
            network.heal()
            await connection.call(LIST_TOPICS, nameserver.ListTopicsRequest(), timeout_s=2)

    run(main)


@pytest.mark.parametrize("heals_after_s", [5, 20])
def test_stream_in_a_one_way_partition_stalls_until_its_keepalive_ends_it(
    heals_after_s: int,
) -> None:
    async def main() -> None:
        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("a").serve(Topics().handlers(), ANY_PORT) as server,
        ):
            connection = await network.host("b").connect([server.address])
            session = connection.open(SESSION)
            hello = groups.SessionRequest(hello=groups.Hello(client_id="one"))
            await session.write(hello)
            assert await session.read() is not None
            network.partition("a", "b", one_way=True)
            await session.write(hello)
            waiting = asyncio.ensure_future(session.read())
            done, _ = await asyncio.wait([waiting], timeout=heals_after_s)
            network.heal()
            if heals_after_s > 15:
                assert done
                with pytest.raises(ConnectionLost, match="a is not heard any more"):
                    await waiting
            else:
                assert not done
                assert await waiting is not None
                session.cancel()

    run(main)
