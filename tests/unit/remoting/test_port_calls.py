import pytest

from ternmq_model.address import Address
from ternmq_remoting.connection_limits import ANONYMOUS_CALLS_MAX, PortLimit
from ternmq_remoting.port_calls import PortCalls, plain_address

PEER, OTHER = "ipv4:192.0.2.1:5000", "ipv6:%5Bfe80::1%25eth0%5D:5000"


def test_connection_has_so_many_calls_at_a_time() -> None:
    calls = PortCalls(2)
    assert [calls.begin(PEER) for _ in range(4)] == [True, True, False, False]
    assert calls.begin(OTHER)
    calls.end(PEER)
    assert [calls.begin(PEER) for _ in range(2)] == [True, False]
    assert calls.counts == {PortLimit.STREAMS: 3}


def test_unknown_caller_has_fewer_calls_until_it_is_admitted() -> None:
    calls = PortCalls(1000)
    begun = [calls.begin(PEER, is_admitted=False) for _ in range(ANONYMOUS_CALLS_MAX + 1)]
    assert begun == [True] * ANONYMOUS_CALLS_MAX + [False]
    assert calls.begin(PEER)
    assert calls.begin(PEER, is_admitted=False)


@pytest.mark.parametrize("is_watched", [False, True])
def test_connection_without_a_running_call_is_kept_for_the_watcher_alone(
    *, is_watched: bool
) -> None:
    calls = PortCalls(2)
    calls.is_watched = is_watched
    calls.begin(PEER)
    calls.end(PEER)
    calls.note(OTHER)
    calls.refuse(OTHER)
    calls.admit(OTHER)
    assert len(calls.called()) == 2 * is_watched


def test_connection_with_a_running_call_is_not_forgotten() -> None:
    calls = PortCalls(2)
    calls.is_watched = True
    calls.begin(PEER)
    calls.forget(PEER)
    calls.end(PEER)
    assert [each.peer for each in calls.called().values()] == [Address("192.0.2.1", 5000)]
    calls.forget(PEER)
    assert not calls.called()


def test_refusal_is_noted_and_told() -> None:
    calls, told = PortCalls(2), list[None]()
    calls.is_watched, calls.on_doubt = True, lambda: told.append(None)
    calls.refuse(PEER)
    calls.note(OTHER)
    assert [each.is_refused for each in calls.called().values()] == [True, False]
    assert len(told) == 1


def test_request_is_awaited_until_it_is_read() -> None:
    calls, told = PortCalls(2), list[None]()
    calls.on_doubt = lambda: told.append(None)
    assert calls.begin(PEER, is_admitted=False)
    (one,) = calls.called().values()
    with calls.awaiting(PEER):
        assert (one.awaited, len(told)) == (1, 1)
    assert one.awaited == 0


def test_address_of_a_socket_is_plain() -> None:
    for host, plain in (("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::1")):
        assert plain_address(Address(host, 1)) == Address(plain, 1)
