"""Converters between contract messages and domain values. Pure, without decisions."""

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
    """Return the typed status of `error`.

    A `TransportError` becomes SYSTEM_ERROR: for the caller it does not matter which peer of this
    service is away.
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
    """Return the error of a typed status with a code other than success.

    Args:
        status: Status of a reply or of a part of it.
        peer: Name of the peer, for the message.
    """
    return refusal(status.code, status.remark, peer, may_have_happened=status.may_have_happened)


def endpoint_to_pb(address: Address) -> common.Endpoint:
    """Return `address` as a contract message."""
    return common.Endpoint(host=address.host, port=address.port)


def endpoint_from_pb(endpoint: common.Endpoint) -> Address:
    """Return the address in a contract message."""
    return Address(endpoint.host, endpoint.port)


def endpoints_from_pb(endpoints: Iterable[common.Endpoint]) -> tuple[Address, ...]:
    """Return the addresses in contract messages, in their order."""
    return tuple(map(endpoint_from_pb, endpoints))


def data_version_to_pb(version: DataVersion) -> common.DataVersion:
    """Return `version` as a contract message."""
    return common.DataVersion(
        timestamp_ms=version.timestamp_ms,
        counter=version.counter,
        state_version=version.state_version,
    )


def data_version_from_pb(version: common.DataVersion) -> DataVersion:
    """Return the version in a contract message."""
    return DataVersion(version.timestamp_ms, version.counter, version.state_version)


def topic_config_to_pb(config: TopicConfig) -> common.TopicConfig:
    """Return `config` as a contract message."""
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
    """Return the settings in a contract message, unchecked. See `check_topic_config`."""
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
    """Return one topic's queues on one broker as a contract message."""
    return common.QueueData(
        broker_name=data.broker_name,
        read_queues=data.read_queues,
        write_queues=data.write_queues,
        permissions=data.permissions,
        sys_flag=data.sys_flag,
    )


def queue_data_from_pb(data: common.QueueData) -> QueueData:
    """Return the queues in a contract message."""
    return QueueData(
        broker_name=data.broker_name,
        read_queues=data.read_queues,
        write_queues=data.write_queues,
        permissions=Permission(data.permissions),
        sys_flag=data.sys_flag,
    )


def broker_member_to_pb(member: BrokerMember) -> common.BrokerMember:
    """Return one member of a broker name as a contract message."""
    return common.BrokerMember(
        broker_id=member.broker_id,
        endpoints=map(endpoint_to_pb, member.endpoints),
        epoch=member.epoch,
    )


def broker_data_to_pb(data: BrokerData) -> common.BrokerData:
    """Return a broker name and its members as a contract message."""
    return common.BrokerData(
        cluster=data.cluster,
        broker_name=data.broker_name,
        members=map(broker_member_to_pb, data.members),
    )


def broker_data_from_pb(data: common.BrokerData) -> BrokerData:
    """Return the broker name in a contract message, with its members sorted by id."""
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
    """Return `route` as a contract message, which does not contain the topic."""
    return common.TopicRoute(
        queues=map(queue_data_to_pb, route.queues),
        brokers=map(broker_data_to_pb, route.brokers),
        order_topic_conf=route.order_topic_conf,
    )


def route_from_pb(topic: str, route: common.TopicRoute) -> TopicRoute:
    """Return the route of `topic` in a contract message, with its parts sorted by broker name.

    Clients compare routes by `==`, and another implementation of the NameServer may send parts in
    any order.
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
    """Return a group's settings as a contract message."""
    return admin.GroupSettings(**asdict(settings))


def group_settings_from_pb(settings: admin.GroupSettings) -> GroupSettings:
    """Return a group's settings in a contract message, unchecked."""
    return GroupSettings(
        settings.group,
        settings.consume_enabled,
        settings.broadcast_enabled,
        settings.consume_from_min_enabled,
        settings.retry_queues,
        settings.retries_max,
        settings.broker_id,
        settings.broker_id_when_slow,
        settings.notify_members_changed,
    )
