from dataclasses import replace

import pytest

from ternmq_model.address import Address
from ternmq_remoting.peer import (
    address_of_peer,
    is_expected,
    target_of,
    texts_of,
)
from ternmq_remoting.rpc import ANY_MEMBER, Identity

ME = Identity("c", "broker-a", 0, 3)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", Address("127.0.0.1", 5000)),
        ("ipv6:%5B::1%5D:5000", Address("::1", 5000)),
        ("ipv6:[fe80::1%25eth0]:5000", Address("fe80::1%eth0", 5000)),
        ("unix:/run/broker.sock", Address("unix:/run/broker.sock", 0)),
        ("", Address("", 0)),
    ],
)
def test_peer_is_parsed_as_grpc_writes_it(peer: str, address: Address) -> None:
    assert address_of_peer(peer) == address


@pytest.mark.parametrize(
    ("address", "target"),
    [
        (Address("10.0.0.1", 1), "ipv4:10.0.0.1:1"),
        (Address("::1", 1), "ipv6:[::1]:1"),
        (Address("broker-a.local", 1), "dns:///broker-a.local:1"),
    ],
)
def test_host_names_alone_are_resolved(address: Address, target: str) -> None:
    assert target_of(address) == target


def test_identity_is_shown_as_operators_know_it() -> None:
    assert str(ME) == "broker broker-a (id 0, epoch 3) of cluster c"
    assert str(replace(ME, broker_id=2, epoch=0)) == "broker broker-a (id 2) of cluster c"


def test_identity_survives_the_way_through_metadata() -> None:
    assert Identity.from_metadata(texts_of((*ME.to_metadata(), ("x-bin", b"\0")))) == ME


@pytest.mark.parametrize("lost", range(4))
def test_incomplete_identity_is_none(lost: int) -> None:
    pairs = list(ME.to_metadata())
    assert Identity.from_metadata(dict(pairs[:lost] + pairs[lost + 1 :])) is None
    key, _ = pairs[lost]
    if key.endswith(("-id", "-epoch")):
        assert Identity.from_metadata({**dict(pairs), key: "many"}) is None


def test_expected_peer_is_same_broker_at_same_or_later_epoch() -> None:
    assert is_expected(None, None)
    assert is_expected(ME, None)
    assert not is_expected(None, ME)
    assert is_expected(ME, ME)
    assert is_expected(replace(ME, epoch=4), ME)
    assert not is_expected(replace(ME, epoch=2), ME)
    for other in (replace(ME, name="b"), replace(ME, cluster="d"), replace(ME, broker_id=1)):
        assert not is_expected(other, ME)


def test_any_member_of_a_name_is_expected_without_its_id() -> None:
    any_member = replace(ME, broker_id=ANY_MEMBER, epoch=0)
    assert is_expected(ME, any_member)
    assert is_expected(replace(ME, broker_id=7), any_member)
    assert not is_expected(replace(ME, name="other"), any_member)
    assert not is_expected(None, any_member)
