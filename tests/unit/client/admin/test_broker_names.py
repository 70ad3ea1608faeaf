"""What a broker can be called by."""

import pytest

from ternmq_client.admin.broker_names import (
    as_dialled,
    by_name_and_address,
    is_address,
    no_such_broker,
)
from ternmq_model.address import Address
from ternmq_model.errors import IllegalName
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, BrokerMember


def broker(name: str, *addresses: tuple[str, ...]) -> BrokerData:
    """Return a broker whose member 0 has the first addresses, member 1 the second."""
    members = enumerate(addresses)
    return BrokerData(
        "c",
        name,
        tuple(BrokerMember(i, tuple(Address(host, 1) for host in each)) for i, each in members),
    )


def test_name_and_every_address_stand_for_the_broker() -> None:
    a, b = broker("a", ("a-0", "10.0.0.1"), ("a-1",)), broker("b", ("::1",))
    assert by_name_and_address([a, b]) == {
        **dict.fromkeys(("a", "a-0:1", "10.0.0.1:1", "a-1:1"), a),
        **dict.fromkeys(("b", "[::1]:1"), b),
    }


def test_address_of_two_brokers_is_its_masters() -> None:
    a, b = broker("a", ("old",), ("same",)), broker("b", ("same",), ("old",))
    for there in ([a, b], [b, a]):
        found = by_name_and_address(there)
        assert (found["same:1"], found["old:1"]) == (b, a)


def test_host_of_the_nameserver_takes_the_place_of_any() -> None:
    (member,) = as_dialled(broker("a", ("a-0", "*")), "10.0.0.9").members
    assert member.endpoints == (Address("a-0", 1), Address("10.0.0.9", 1))


def test_name_is_illegal_that_no_broker_can_have() -> None:
    assert [is_address(each) for each in ("h:1", "[::1]:1", "room@a", "a")] == [1, 1, 0, 0]
    told = no_such_broker(("a", "h:1"), [Address("n", 2)])
    assert told.code == ResponseCode.BROKER_NOT_EXIST
    assert "broker a, h:1: no such broker is registered" in str(told)
    assert "the address of a NameServer" in str(no_such_broker(("n:2",), [Address("n", 2)]))
    with pytest.raises(IllegalName):
        no_such_broker(("h:1", "not good"), ())
