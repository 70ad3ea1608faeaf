"""Converters between contract messages and domain values. Pure; decide nothing."""

from collections.abc import Iterable
from dataclasses import asdict

from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import RefusedError, TernError, refusal
from ternmq_model.group_settings import GroupSettings
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import (
    BrokerData,
    BrokerMember,
    Permission,
    QueueData,
    TopicConfig,
    TopicRoute,
)
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting.status import refusal_of


def status_of(error: TernError) -> common.Status:
    """Return the typed status that tells `error`.

    One that no peer answered for (a `TransportError`) is told as SYSTEM_ERROR: to the caller it
    does not matter which of our own peers is away.
    """
    refused = refusal_of(error)
    if refused is None:
        return common.Status(
            code=ResponseCode.SYSTEM_ERROR,
            remark=str(error),
            may_have_happened=error.may_have_happened,
        )
    return common.Status(
        code=refused.code, remark=refused.remark, may_have_happened=refused.may_have_happened
    )


def error_of(status: common.Status, peer: str) -> RefusedError:
    """Return the error that a typed status with another code than success tells.

    Args:
        status: Of a reply, or of a part of one.
        peer: Who refused, for the message.
    """
    return refusal(status.code, status.remark, peer, may_have_happened=status.may_have_happened)


def endpoint_to_pb(address: Address) -> common.Endpoint:
    """Return `address` as a contract tells it."""
    return common.Endpoint(host=address.host, port=address.port)


def endpoint_from_pb(endpoint: common.Endpoint) -> Address:
    """Return the address that a contract tells."""
    return Address(endpoint.host, endpoint.port)


def endpoints_from_pb(endpoints: Iterable[common.Endpoint]) -> tuple[Address, ...]:
    """Return addresses in the order told."""
    return tuple(map(endpoint_from_pb, endpoints))


def data_version_to_pb(version: DataVersion) -> common.DataVersion:
    """Return `version` as a contract tells it."""
    return common.DataVersion(
        timestamp_ms=version.timestamp_ms,
        counter=version.counter,
        state_version=version.state_version,
    )


def data_version_from_pb(version: common.DataVersion) -> DataVersion:
    """Return the version that a contract tells."""
    return DataVersion(version.timestamp_ms, version.counter, version.state_version)


def topic_config_to_pb(config: TopicConfig) -> common.TopicConfig:
    """Return `config` as a contract tells it."""
    return common.TopicConfig(
        topic=config.topic,
        read_queues=config.read_queues,
        write_queues=config.write_queues,
        permissions=config.permissions,
        sys_flag=config.sys_flag,
        ordered=config.ordered,
        retention_ms=config.retention_ms,
    )


def topic_config_from_pb(config: common.TopicConfig) -> TopicConfig:
    """Return the settings that a contract tells, not checked (`check_topic_config` does)."""
    return TopicConfig(
        topic=config.topic,
        read_queues=config.read_queues,
        write_queues=config.write_queues,
        permissions=Permission(config.permissions),
        sys_flag=config.sys_flag,
        ordered=config.ordered,
        retention_ms=config.retention_ms,
    )


def queue_data_to_pb(data: QueueData) -> common.QueueData:
    """Return one topic's queues on one broker as a contract tells them."""
    return common.QueueData(
        broker_name=data.broker_name,
        read_queues=data.read_queues,
        write_queues=data.write_queues,
        permissions=data.permissions,
        sys_flag=data.sys_flag,
    )


def queue_data_from_pb(data: common.QueueData) -> QueueData:
    """Return the queues that a contract tells."""
    return QueueData(
        broker_name=data.broker_name,
        read_queues=data.read_queues,
        write_queues=data.write_queues,
        permissions=Permission(data.permissions),
        sys_flag=data.sys_flag,
    )


def broker_member_to_pb(member: BrokerMember) -> common.BrokerMember:
    """Return one member of a broker name as a contract tells it."""
    return common.BrokerMember(
        broker_id=member.broker_id,
        endpoints=map(endpoint_to_pb, member.endpoints),
        epoch=member.epoch,
    )


def broker_data_to_pb(data: BrokerData) -> common.BrokerData:
    """Return a broker name and its members as a contract tells them."""
    return common.BrokerData(
        cluster=data.cluster,
        broker_name=data.broker_name,
        members=map(broker_member_to_pb, data.members),
    )


def broker_data_from_pb(data: common.BrokerData) -> BrokerData:
    """Return the broker name that a contract tells, its members sorted by id."""
    members = (
        BrokerMember(member.broker_id, endpoints_from_pb(member.endpoints), member.epoch)
        for member in data.members
    )
    return BrokerData(
        cluster=data.cluster,
        broker_name=data.broker_name,
        members=tuple(sorted(members, key=lambda member: member.broker_id)),
    )


def route_to_pb(route: TopicRoute) -> common.TopicRoute:
    """Return `route` as a contract tells it; the topic itself stays with the request."""
    return common.TopicRoute(
        queues=map(queue_data_to_pb, route.queues),
        brokers=map(broker_data_to_pb, route.brokers),
        order_topic_conf=route.order_topic_conf,
    )


def route_from_pb(topic: str, route: common.TopicRoute) -> TopicRoute:
    """Return the route of `topic` that a contract tells, its parts sorted by broker name.

    Sorted, because clients compare routes by `==`, and a NameServer written by somebody else may
    tell them in any order.
    """
    queues = sorted(map(queue_data_from_pb, route.queues), key=lambda data: data.broker_name)
    brokers = sorted(map(broker_data_from_pb, route.brokers), key=lambda data: data.broker_name)
    return TopicRoute(
        topic=topic,
        queues=tuple(queues),
        brokers=tuple(brokers),
        order_topic_conf=route.order_topic_conf,
    )


def group_settings_to_pb(settings: GroupSettings) -> admin.GroupSettings:
    """Return a group's settings as the contract has them."""
    return admin.GroupSettings(**asdict(settings))


def group_settings_from_pb(told: admin.GroupSettings) -> GroupSettings:
    """Return a group's settings as they were told, possible or not."""
    return GroupSettings(
        told.group,
        told.consume_enabled,
        told.broadcast_enabled,
        told.consume_from_min_enabled,
        told.retry_queues,
        told.retries_max,
        told.broker_id,
        told.broker_id_when_slow,
        told.notify_members_changed,
    )
