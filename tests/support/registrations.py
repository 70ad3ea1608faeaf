"""Registrations, for tests of what a `RouteTable` makes of them."""

from dataclasses import replace
from typing import Any

from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.route import TopicConfig
from ternmq_nameserver.memory_estimate import member_bytes, topics_bytes
from ternmq_nameserver.registration import BrokerRegistration
from ternmq_nameserver.route_changes import RouteChange
from ternmq_nameserver.route_table import RouteTable


def topics(*names: str) -> tuple[TopicConfig, ...]:
    """Return topics of those names."""
    return tuple(map(TopicConfig, names))


def master(name: str = "a", **changes: Any) -> BrokerRegistration:
    """Return the registration of a master."""
    registration = BrokerRegistration(
        cluster="c",
        broker_name=name,
        broker_id=0,
        endpoints=(Address(f"{name}-0", 10911), Address("*", 10911)),
        incarnation=f"{name}-life-1",
        data_version=DataVersion(1),
        topics=topics("t"),
    )
    return replace(registration, **changes)


def slave(name: str = "a", broker_id: int = 1, **changes: Any) -> BrokerRegistration:
    """Return the registration of a slave."""
    endpoints = (Address(f"{name}-{broker_id}", 10911), Address("*", 10911))
    incarnation = f"{name}-{broker_id}-life-1"
    whole = master(name, broker_id=broker_id, endpoints=endpoints, incarnation=incarnation)
    return replace(whole, **changes)


def unregister(
    table: RouteTable, registration: BrokerRegistration, now_ms: int = 0
) -> tuple[RouteChange, ...]:
    """Have a member unregister as it registered."""
    return table.unregister(
        cluster=registration.cluster,
        broker_name=registration.broker_name,
        broker_id=registration.broker_id,
        incarnation=registration.incarnation,
        now_ms=now_ms,
    )


def table_with(*registrations: BrokerRegistration) -> RouteTable:
    """Return a table with those registered at 0 ms."""
    table = RouteTable()
    for registration in registrations:
        table.register(registration, now_ms=0)
    return table


def room_for(*registrations: BrokerRegistration) -> int:
    """Return what registrations count for."""
    told = sum(topics_bytes(each.topics) for each in registrations)
    return told + sum(
        member_bytes((each.cluster, each.broker_name, each.incarnation), each.endpoints)
        for each in registrations
    )
