from dataclasses import replace

import pytest

from ternmq_model.address import Address
from ternmq_remoting.connection_limits import (
    PROGRESS_BYTES,
    ConnectionCalls,
    PortConnection,
    PortLimit,
    is_failed_handshake,
    to_close,
)
from ternmq_remoting.network_config import NetworkConfig

LIMITS = NetworkConfig()
SILENT_S = LIMITS.first_message_timeout_s
TOO_MUCH = LIMITS.anonymous_bytes_max + 1


def connection(
    port: int = 1, *, host: str = "192.0.2.1", calls: bool = False, seen_at_s: float = 0.0
) -> PortConnection:
    peer = Address(host, port)
    return PortConnection(peer, seen_at_s, ConnectionCalls(peer) if calls else None)


def limit_of(one: PortConnection, *, now_s: float) -> PortLimit | None:
    found = to_close([one], LIMITS, now_s=now_s)
    return found[0][1] if found else None


def test_connection_without_a_call_has_its_time() -> None:
    silent, calling = connection(), connection(calls=True)
    assert limit_of(silent, now_s=SILENT_S - 0.1) is None
    assert limit_of(silent, now_s=SILENT_S) is PortLimit.FIRST_MESSAGE
    assert limit_of(calling, now_s=3600) is None


def test_slow_upload_gives_a_connection_more_time_and_pings_do_not() -> None:
    upload, pings = connection(), connection()
    for second in range(100):
        upload.note_received(second * PROGRESS_BYTES, now_s=second)
        pings.note_received(second * 17, now_s=second)
    assert limit_of(upload, now_s=99 + SILENT_S - 0.1) is None
    assert limit_of(upload, now_s=99 + SILENT_S) is PortLimit.FIRST_MESSAGE
    assert limit_of(pings, now_s=99) is PortLimit.FIRST_MESSAGE


@pytest.mark.parametrize("is_admitted", [False, True])
@pytest.mark.parametrize(("is_refused", "awaited"), [(False, 0), (False, 1), (True, 0)])
@pytest.mark.parametrize("received_bytes", [TOO_MUCH - 1, TOO_MUCH])
def test_unknown_caller_who_is_not_served_may_send_little(
    received_bytes: int, awaited: int, *, is_refused: bool, is_admitted: bool
) -> None:
    one = connection(calls=True)
    assert one.calls is not None
    one.calls.is_admitted, one.calls.is_refused = is_admitted, is_refused
    one.calls.awaited = awaited
    assert one.is_settled == (is_admitted or not (is_refused or awaited))
    one.note_received(received_bytes, now_s=1)
    is_over = (is_refused or awaited) and not is_admitted and received_bytes == TOO_MUCH
    assert limit_of(one, now_s=1) is (PortLimit.ANONYMOUS_BYTES if is_over else None)


def test_newest_connections_of_each_address_are_closed() -> None:
    limits = replace(LIMITS, connections_by_address_max=2)
    near = [connection(port, calls=True) for port in range(4)]
    far = [connection(port, host="192.0.2.2", calls=True) for port in range(2)]
    found = to_close([*near[:3], *far, near[3]], limits, now_s=0)
    assert found == [(near[2], PortLimit.ADDRESS), (near[3], PortLimit.ADDRESS)]


def test_connection_that_is_closed_makes_way_for_a_newer_one() -> None:
    limits = replace(LIMITS, connections_by_address_max=1)
    silent, newer = connection(1), connection(2, calls=True)
    assert to_close([silent, newer], limits, now_s=SILENT_S) == [(silent, PortLimit.FIRST_MESSAGE)]


@pytest.mark.parametrize(
    ("age_s", "calls", "expected"),
    [
        (8.9, False, False),
        (9.0, False, True),
        (10.0, False, True),
        (15.0, False, True),
        (15.1, False, False),
        (10.0, True, False),
    ],
)
def test_handshake_has_failed_where_a_connection_without_a_call_is_gone_at_its_age(
    age_s: float, expected: bool, *, calls: bool
) -> None:
    gone = connection(calls=calls, seen_at_s=5)
    assert is_failed_handshake(gone, LIMITS, now_s=5 + age_s) is expected
