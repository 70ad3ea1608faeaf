"""Names of brokers in administrative calls: broker names and registered addresses. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ternmq_model.address import Address, parse_address, resolve_addresses
from ternmq_model.errors import ConfigError, RefusedError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, check_broker_name


def by_name_and_address(brokers: Iterable[BrokerData]) -> Mapping[str, BrokerData]:
    """Return the brokers by name and by the registered address of any member.

    Names win over addresses, and addresses of masters over those of slaves.
    """
    every = list(brokers)
    members = [(member, data) for data in every for member in data.members]
    members.sort(key=lambda one: one[0].broker_id, reverse=True)
    addresses = {str(each): data for member, data in members for each in member.endpoints}
    return addresses | {data.broker_name: data for data in every}


def as_dialled(data: BrokerData, nameserver_host: str) -> BrokerData:
    """Return a broker whose addresses can be dialled from this machine.

    Args:
        data: Broker in the form that a NameServer returned.
        nameserver_host: Host of that NameServer, which replaces the host "*".
    """
    return replace(
        data,
        members=tuple(
            replace(
                member,
                endpoints=resolve_addresses(member.endpoints, nameserver_host=nameserver_host),
            )
            for member in data.members
        ),
    )


def is_address(broker: str) -> bool:
    """Return whether `broker` is an address rather than a broker name."""
    try:
        parse_address(broker, setting="broker")
    except ConfigError:
        return False
    return True


def no_such_broker(brokers: Sequence[str], nameservers: Collection[Address]) -> RefusedError:
    """Return the refusal of names and addresses that no broker is registered with.

    Args:
        brokers: Names and addresses that are not registered.
        nameservers: Addresses of the NameServers that were asked.

    Raises:
        IllegalName: An entry is neither an address nor a legal broker name.
    """
    for broker in brokers:
        if not is_address(broker):
            check_broker_name(broker)
    remark = f"broker {', '.join(brokers)}: no such broker is registered"
    if set(brokers) & set(map(str, nameservers)):
        remark += "; that is the address of a NameServer"
    return refusal(ResponseCode.BROKER_NOT_EXIST, remark)
