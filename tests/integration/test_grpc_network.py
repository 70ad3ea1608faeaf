import asyncio
import platform
import subprocess
import sys
from dataclasses import replace

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import (
    BrokerBusy,
    ClosedError,
    ConnectionLost,
    MessageRefused,
    RefusedError,
    RequestTimedOut,
    TopicNotFound,
    TransportError,
    Unreachable,
    UsageError,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.version import __version__
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.connection import GrpcConnection
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.service_methods import PULL, SEND, SEND_STREAM, VIEW_MESSAGE
from ternmq_remoting.system_environment import system_environment
from tests.support.cut_wire import CutWire
from tests.support.echo_service import (
    ANY_PORT,
    ME,
    EchoService,
    batch,
    echoing,
    error_of,
    open_stream,
    run,
    send,
)

NOBODY = Address("127.0.0.1", 1)

COUNT_PAGE_FAULTS = """
from resource import RUSAGE_SELF, getrusage
from ternmq_remoting.grpc_network import GrpcNetwork

GrpcNetwork.begin()
for size in (1 << 20, 4 << 20):
    bytearray(size)
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bytearray(size)
    print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""
"""Program that prints the page faults of 100 buffers of 1 MiB, and of 4 MiB."""


def test_call_is_answered_and_its_handler_knows_the_caller() -> None:
    async def test() -> None:
        async with echoing() as (service, _, link):
            assert (await send(link, "T")).queue_offset == 0
            assert (await send(link, "T")).queue_offset == 1
            (call, _) = service.calls
            assert call.peer.host == "127.0.0.1"
            assert call.peer.port > 0
            assert call.metadata["ternmq-language"] == "python"
            assert call.metadata["ternmq-version"] == __version__

    run(test)


def test_refusal_is_raised_by_the_call_and_an_answer_is_returned() -> None:
    async def test() -> None:
        async with echoing() as (_, server, link):
            error = await error_of(send(link, "none"))
            assert type(error) is TopicNotFound
            assert (error.remark, error.peer) == ("no topic 'none'", str(server.address))
            pulled = await link.call(PULL, messages.PullRequest(topic="T"), timeout_s=30)
            assert pulled.status.code == ResponseCode.PULL_NOT_FOUND

    run(test)


def test_unreachable_peer_of_handler_is_connection_loss_not_refusal() -> None:
    async def test() -> None:
        async with echoing() as (_, _, link):
            assert type(await error_of(send(link, "lost"))) is ConnectionLost

    run(test)


def test_unserved_rpc_is_refused() -> None:
    async def test() -> None:
        async with echoing() as (_, _, link):
            view = link.call(VIEW_MESSAGE, messages.ViewMessageRequest(), timeout_s=30)
            error = await error_of(view)
            assert isinstance(error, RefusedError)
            assert error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(test)


def test_message_above_the_cap_is_refused_and_one_below_arrives() -> None:
    async def test() -> None:
        async with echoing() as (service, _, link):
            large = messages.SendRequest(topic="T", body=bytes((4 << 20) + (300 << 10)))
            error = await error_of(link.call(SEND, large, timeout_s=30))
            assert type(error) is MessageRefused
            assert not error.may_have_happened
            assert not service.records
            fits = messages.SendRequest(
                topic="T", body=bytes(4 << 20), properties={"K": "v" * 32_000}
            )
            assert not (await link.call(SEND, fits, timeout_s=30)).status.code

    run(test)


def test_late_answer_may_have_happened() -> None:
    async def test() -> None:
        async with echoing() as (service, _, link):
            error = await error_of(send(link, "hold", timeout_s=0.05))
            assert type(error) is RequestTimedOut
            assert error.may_have_happened
            assert service.arrived.is_set()

    run(test)


def test_unreachable_call_never_happened_and_a_cut_off_one_may_have() -> None:
    async def test() -> None:
        async with echoing() as (service, server, _), CutWire(server.address) as wire:
            link = await GrpcNetwork().connect([wire.address])
            async with asyncio.TaskGroup() as group:
                held = group.create_task(error_of(send(link, "hold")))
                opened = await open_stream(link)
                await service.arrived.wait()
                await wire.cut()
            lost = held.result()
            assert type(lost) is ConnectionLost, lost
            assert lost.may_have_happened
            assert type(await error_of(opened.read())) is ConnectionLost
            assert type(await error_of(opened.write(batch()))) is ConnectionLost
            # A call may still meet the broken socket before gRPC has put it away.
            while type(gone := await error_of(send(link, "T"))) is ConnectionLost:
                assert gone.may_have_happened
            assert type(gone) is Unreachable
            assert not gone.may_have_happened
            assert str(wire.address) in str(gone)
            unopened = link.open(SEND_STREAM)
            assert type(await error_of(unopened.write(batch()))) is Unreachable
            assert not service.records
            await link.close()

    run(test)


def test_connection_finds_its_server_again() -> None:
    async def test() -> None:
        network = GrpcNetwork(grace_s=0)
        async with network.serve(EchoService().handlers(), ANY_PORT) as first:
            link = await network.connect([first.address], timeout_s=30)
        assert isinstance(await error_of(send(link, "T")), TransportError)
        async with network.serve(EchoService().handlers(), first.address):
            async with asyncio.timeout(60):
                while True:
                    try:
                        await send(link, "T")
                        break
                    except TransportError:
                        await asyncio.sleep(0.05)
        await link.close()

    run(test)


def test_stream_carries_both_directions_and_ends_cleanly() -> None:
    async def test() -> None:
        async with echoing() as (service, _, link):
            opened = await open_stream(link)
            sizes = [1, 1 << 20, 0, 70_000]

            async def write() -> None:
                for size in sizes:
                    await opened.write(batch(bytes(size)))
                await opened.finish()
                await opened.finish()

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                replies = [await opened.read() for _ in sizes]
                assert await opened.read() is None
            assert [reply and reply.stored.stored_at_ms for reply in replies] == sizes
            assert await opened.read() is None
            assert type(await error_of(opened.write(batch()))) is ConnectionLost
            assert service.endings == ["returned"]

    run(test)


def test_refusal_ends_a_stream_and_is_raised_by_read_and_write() -> None:
    async def test() -> None:
        async with echoing() as (_, _, link):
            opened = await open_stream(link)
            await opened.write(batch(is_retry=True))
            for waiting in (opened.read(), opened.read(), opened.write(batch())):
                error = await error_of(waiting)
                assert type(error) is BrokerBusy
                assert (error.code, error.remark) == (ResponseCode.SYSTEM_BUSY, "busy")

    run(test)


def test_departing_caller_cancels_the_handler_and_never_looks_like_an_end() -> None:
    async def test() -> None:
        async with echoing() as (service, _, link):
            for _ in range(50):
                opened = await open_stream(link)
                opened.cancel()
                opened.cancel()
            other = await open_stream(link)
            while len(service.endings) < 50:
                await other.write(batch(b"abc"))
                await other.read()
            assert set(service.endings) == {"CancelledError"}

    run(test)


def test_pending_stream_reads_and_calls_fail_with_closed_error() -> None:
    async def test() -> None:
        async with echoing() as (service, _, link):
            opened = await open_stream(link)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(error_of(opened.read()))
                calling = group.create_task(error_of(send(link, "hold")))
                await service.arrived.wait()
                opened.cancel()
                assert type(await reading) is ClosedError
                await link.close()
                assert type(await calling) is ClosedError
            assert type(await error_of(opened.write(batch()))) is ClosedError
            assert type(await error_of(send(link, "T"))) is ClosedError
            with pytest.raises(ClosedError):
                link.open(SEND_STREAM)
            await link.close()

    run(test)


def test_cancelled_caller_stays_cancelled() -> None:
    async def test() -> None:
        async with echoing() as (service, _, link):
            opened = await open_stream(link)
            reading = asyncio.ensure_future(opened.read())
            calling = asyncio.ensure_future(send(link, "hold"))
            await service.arrived.wait()
            for task in (reading, calling):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await send(link, "hold")

    run(test)


def test_connect_keeps_the_expected_peer() -> None:
    async def test() -> None:
        network = GrpcNetwork()
        other = replace(ME, name="broker-b")
        async with (
            network.serve([], ANY_PORT, identity=other) as stranger,
            network.serve([], ANY_PORT) as nameless,
            network.serve([], ANY_PORT, identity=ME) as friend,
        ):
            addresses = [NOBODY, stranger.address, nameless.address, friend.address]
            link = await network.connect(addresses, expect=replace(ME, epoch=2), timeout_s=30)
            assert link.address == friend.address
            await link.close()
            later = replace(ME, epoch=4)
            error = await error_of(network.connect(addresses, expect=later, timeout_s=30))
            assert type(error) is Unreachable
            for address in addresses:
                assert str(address) in str(error)
            assert "broker-b" in str(error)
            link = await network.connect([NOBODY, nameless.address], timeout_s=30)
            assert link.address == nameless.address
            await link.close()
            assert type(await error_of(network.connect([]))) is Unreachable

    run(test)


def test_connect_does_not_wait_for_a_silent_peer() -> None:
    async def test() -> None:
        network = GrpcNetwork()
        async with network.serve([], ANY_PORT) as server, CutWire(server.address) as wire:
            wire.silence()
            link = await network.connect([wire.address, server.address], timeout_s=60)
            assert link.address == server.address
            await link.close()
            error = await error_of(network.connect([wire.address], timeout_s=0.1))
            assert type(error) is Unreachable
            assert str(wire.address) in str(error)

    run(test)


def test_environment_of_real_processes_is_complete() -> None:
    async def test() -> None:
        async with system_environment() as env:
            assert env.clock.wall_ms() > 0
            assert await env.blocking.run(len, b"abc") == 3
            assert 0 <= env.random.random() < 1
            async with env.network.serve([], ANY_PORT) as server:
                await (await env.network.connect([server.address], timeout_s=30)).close()

    run(test)


def test_unknown_host_name_is_unreachable() -> None:
    async def test() -> None:
        unknown = Address("broker.invalid", 1)
        link = GrpcConnection(unknown)
        error = await error_of(send(link, "T"))
        assert type(error) is Unreachable
        assert "broker.invalid" in str(error)
        await link.close()

    run(test)


def test_powerless_peer_is_noticed_on_both_sides_by_keepalive() -> None:
    async def test() -> None:
        async with echoing() as (service, server, _), CutWire(server.address) as wire:
            link = await GrpcNetwork().connect([wire.address])
            opened = await open_stream(link)
            wire.silence()
            # At most 10 s until a ping and 5 s for its answer; `run` gives up after 20 s.
            assert type(await error_of(opened.read())) is ConnectionLost
            await service.ended.wait()
            assert service.endings == ["CancelledError"]
            await link.close()

    run(test)


def test_call_from_another_event_loop_is_refused_instead_of_hanging() -> None:
    async def test() -> None:
        async with echoing() as (_, _, link):
            with pytest.raises(UsageError, match="belongs to another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(send(link, "T")))

    run(test)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators differ")
def test_process_with_grpc_reuses_the_memory_of_freed_buffers() -> None:
    program = [sys.executable, "-c", COUNT_PAGE_FAULTS]
    printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    assert all(int(faults) < 100 for faults in printed.split()), printed
