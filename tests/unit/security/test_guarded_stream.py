"""Streams that end: refused messages, changed tables, expired tokens; under virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import ConnectionLost, PermissionRefused, RefusedError
from ternmq_model.permission import of_group, to_publish, to_read
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import AUTHORIZATION_KEY, EVERYTHING, Call, Handler
from ternmq_remoting.service_methods import PULL_STREAM
from ternmq_runtime.service import OwnedTasks
from ternmq_security import guarded_stream
from ternmq_security.caller import CallerIdentity
from ternmq_security.guard import Guard, guarded
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.identities import Granted, Identities

CALL = Call(Address("client", 1), {AUTHORIZATION_KEY: "shop"})
OPEN = messages.PullStreamRequest(open={"group": "g"})
TO_T = messages.PullStreamRequest(subscribe={"topic": "T"})
TO_U = messages.PullStreamRequest(subscribe={"topic": "U"})

Serve = Callable[[Any, Call], Awaitable[None]]


def shop(*needs: Any, **fields: Any) -> CallerIdentity:
    return CallerIdentity("shop", Granted(*needs), **fields)


ALL = (of_group("g"), to_read("T"), to_read("U"))


class LiveStream:
    """Handler's side of a stream whose peer sends these messages and then waits."""

    def __init__(self, *requests: Any) -> None:
        self.requests = list(requests)
        self.written: list[Any] = []

    async def read(self) -> Any:
        if self.requests:
            return self.requests.pop(0)
        await asyncio.Event().wait()

    async def write(self, message: Any, /) -> None:
        self.written.append(message)


class Opened:
    """A stream under way, of the user `shop`."""

    def __init__(self, serve: Serve, *requests: Any, caller: CallerIdentity | None = None) -> None:
        self.identities = Identities(shop=caller or shop(*ALL))
        self.guard = Guard(self.identities)
        self.stream = LiveStream(*requests)
        self.serve = serve
        self.task: asyncio.Task[None]

    async def open(self) -> "Opened":
        (handler,) = guarded([Handler(PULL_STREAM, self.serve)], self.guard)
        coroutine = handler.function(self.stream, CALL)
        self.task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0.1)
        return self

    def change(self, *callers: CallerIdentity) -> None:
        """Let these be the only users."""
        self.identities.callers = {each.user: each for each in callers if each.user}
        self.guard.table_changed()

    async def ended(self) -> RefusedError:
        """Return what ended the stream, within a second."""
        async with asyncio.timeout(1):
            with pytest.raises(RefusedError) as refused:
                await self.task
        return refused.value


async def read_all(stream: Any, _call: Call) -> None:
    while await stream.read() is not None:
        pass


async def read_beside(stream: Any, call: Call) -> None:
    """Read in a task of its own, as a Session does, and wait for something else."""
    async with OwnedTasks() as tasks:
        tasks.spawn(read_all(stream, call), "reading")
        await asyncio.Event().wait()


async def write_on(stream: Any, call: Call) -> None:
    """Write again and again, whatever happens to single writes."""
    await stream.read()
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
        finally:
            await stream.write(messages.PullStreamReply())


async def swallow(stream: Any, call: Call) -> None:
    """Return as if nothing had happened."""
    try:
        await read_all(stream, call)
    except (asyncio.CancelledError, RefusedError):
        return


async def lose(stream: Any, call: Call) -> None:
    """Make another error of it."""
    try:
        await read_all(stream, call)
    except BaseException:
        raise ConnectionLost("lost") from None


SERVING: list[Serve] = [read_all, read_beside, write_on, swallow, lose]


@pytest.mark.parametrize("serve", SERVING)
def test_stream_of_a_user_who_lost_a_permission_ends(serve: Serve) -> None:
    async def main() -> None:
        opened = await Opened(serve, OPEN, TO_T).open()
        opened.change(shop(of_group("other")))
        error = await opened.ended()
        assert error.code == ResponseCode.NO_PERMISSION
        assert error.remark.startswith("user 'shop' may not subscribe to")

    run_in_virtual_time(main())


@pytest.mark.parametrize("serve", SERVING)
def test_stream_of_a_removed_user_ends(serve: Serve) -> None:
    async def main() -> None:
        opened = await Opened(serve, OPEN, TO_T).open()
        opened.change(CallerIdentity("other", Granted()))
        error = await opened.ended()
        assert error.remark == "the credentials of user 'shop' are no longer valid"

    run_in_virtual_time(main())


@pytest.mark.parametrize("serve", SERVING)
def test_stream_of_an_expired_token_ends(serve: Serve) -> None:
    async def main() -> None:
        opened = await Opened(serve, OPEN, caller=shop(*ALL, expires_at_ms=5000)).open()
        opened.guard.step(4999)
        await asyncio.sleep(0.1)
        assert not opened.task.done()
        opened.guard.step(5000)
        assert "no longer valid" in str(await opened.ended())

    run_in_virtual_time(main())


def test_stream_goes_on_with_what_it_uses() -> None:
    async def main() -> None:
        opened = await Opened(read_all, OPEN, TO_T).open()
        opened.change(shop(of_group("g"), to_read("T")))
        await asyncio.sleep(5)
        assert not opened.task.done()
        assert opened.guard.is_open is False
        opened.change(shop(of_group("g")))
        assert "topic:T" in str(await opened.ended())

    run_in_virtual_time(main())


def test_later_message_is_checked_by_the_present_table() -> None:
    async def main() -> None:
        opened = Opened(read_slowly, OPEN, TO_U)
        await opened.open()
        opened.change(shop(of_group("g"), to_read("T")))
        await asyncio.sleep(1)
        assert "user 'shop' may not subscribe to topic:U" in str(await opened.ended())

    async def read_slowly(stream: Any, call: Call) -> None:
        await stream.read()
        await asyncio.sleep(0.5)
        await stream.read()

    run_in_virtual_time(main())


@pytest.mark.parametrize("serve", [read_all, swallow, lose])
def test_refused_message_ends_the_stream(serve: Serve) -> None:
    async def main() -> None:
        opened = await Opened(serve, OPEN, TO_T, TO_U, caller=shop(of_group("g"))).open()
        assert "user 'shop' may not subscribe to topic:T" in str(await opened.ended())
        assert opened.stream.requests == [TO_U]

    run_in_virtual_time(main())


def test_handler_that_ignores_a_refused_message_is_cancelled() -> None:
    async def ignore(stream: Any, call: Call) -> None:
        for _ in range(2):
            with pytest.raises(PermissionRefused):
                await stream.read()
        with pytest.raises(PermissionRefused):
            await stream.write(messages.PullStreamReply())
        await asyncio.Event().wait()

    async def main() -> None:
        opened = await Opened(ignore, OPEN, caller=shop()).open()
        await asyncio.sleep(2)
        assert opened.task.done()
        assert "group:g" in str(await opened.ended())

    run_in_virtual_time(main())


def test_permissions_that_the_handler_used_count_too() -> None:
    async def publish(stream: Any, call: Call) -> None:
        call.permits.check(to_publish("P"))
        assert call.permits.allows(to_publish("Q"))
        assert not call.permits.allows(to_publish("R"))
        with pytest.raises(PermissionRefused):
            call.permits.check(to_publish("R"))
        await stream.read()

    async def main() -> None:
        for lost in (to_publish("P"), to_publish("Q")):
            needs = {to_publish("P"), to_publish("Q")}
            opened = await Opened(publish, caller=shop(*needs)).open()
            opened.change(shop(*needs))
            await asyncio.sleep(0.1)
            assert not opened.task.done()
            opened.change(shop(*needs - {lost}))
            assert str(lost[1] if lost else "") in str(await opened.ended())

    run_in_virtual_time(main())


def test_stream_with_too_many_uses_is_to_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_stream, "USED_MAX", 2)

    async def main() -> None:
        opened = await Opened(read_all, OPEN, TO_T, TO_U).open()
        opened.change(shop(*ALL))
        error = await opened.ended()
        assert error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert error.retryable

    run_in_virtual_time(main())


def test_stream_from_before_the_first_user_is_to_be_opened_again() -> None:
    calls: list[Call] = []

    async def serve(stream: Any, call: Call) -> None:
        calls.append(call)
        assert isinstance(stream, LiveStream), "an open guard adds nothing to a stream"
        await read_all(stream, call)

    async def main() -> None:
        opened = Opened(serve, OPEN)
        opened.guard.is_open = True
        await opened.open()
        assert calls[0].permits is EVERYTHING
        opened.change(shop(*ALL))
        error = await opened.ended()
        assert error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert error.remark == "users and permissions have changed: open the stream again"

    run_in_virtual_time(main())


def test_ended_and_cancelled_streams_are_forgotten() -> None:
    async def main() -> None:
        opened = await Opened(read_all, OPEN).open()
        opened.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opened.task
        opened.change(CallerIdentity("other", Granted()))
        opened.guard.step(1 << 60)

    run_in_virtual_time(main())


def test_error_of_the_handler_is_its_own() -> None:
    async def fail(stream: Any, call: Call) -> None:
        raise TimeoutError("mine")

    async def main() -> None:
        opened = await Opened(fail).open()
        with pytest.raises(TimeoutError, match="mine"):
            await opened.task

    run_in_virtual_time(main())
