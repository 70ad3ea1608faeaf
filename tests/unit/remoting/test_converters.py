from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import ConnectionLost, IllegalName, TernError, Unreachable, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import (
    BrokerData,
    BrokerMember,
    Permission,
    QueueData,
    TopicConfig,
    TopicRoute,
)
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting import converters

CONFIG = TopicConfig(
    "T", 3, 5, Permission.READ | Permission(8), sys_flag=2, ordered=True, retention_ms=7
)
QUEUES = QueueData("a", 3, 5, Permission.READ | Permission.WRITE, sys_flag=1)
BROKER = BrokerData(
    "cluster",
    "a",
    (
        BrokerMember(0, (Address("10.0.0.1", 10911), Address("*", 10911)), epoch=7),
        BrokerMember(1, (Address("::1", 10912),), epoch=6),
    ),
)


def test_conversion_round_trip_changes_nothing() -> None:
    version = DataVersion(1, 2, 3)
    assert converters.data_version_from_pb(converters.data_version_to_pb(version)) == version
    address = Address("::1", 65_535)
    assert converters.endpoint_from_pb(converters.endpoint_to_pb(address)) == address
    assert converters.topic_config_from_pb(converters.topic_config_to_pb(CONFIG)) == CONFIG
    assert converters.queue_data_from_pb(converters.queue_data_to_pb(QUEUES)) == QUEUES
    assert converters.broker_data_from_pb(converters.broker_data_to_pb(BROKER)) == BROKER
    route = TopicRoute("T", (QUEUES,), (BROKER,), "a:5")
    assert converters.route_from_pb("T", converters.route_to_pb(route)) == route


def test_every_field_of_the_contract_is_converted() -> None:
    for message in (
        converters.topic_config_to_pb(CONFIG),
        converters.queue_data_to_pb(QUEUES),
        converters.broker_data_to_pb(BROKER),
        converters.route_to_pb(TopicRoute("T", (QUEUES,), (BROKER,), "a:5")),
        converters.data_version_to_pb(DataVersion(1, 2, 3)),
    ):
        assert {field.name for field, _ in message.ListFields()} == set(
            message.DESCRIPTOR.fields_by_name
        )


def test_reordered_route_is_the_same_route() -> None:
    names = ("b", "a")
    told = common.TopicRoute(
        queues=[common.QueueData(broker_name=name) for name in names],
        brokers=[
            common.BrokerData(
                broker_name=name,
                members=[common.BrokerMember(broker_id=number) for number in (1, 0)],
            )
            for name in names
        ],
    )
    route = converters.route_from_pb("T", told)
    assert [data.broker_name for data in route.queues] == ["a", "b"]
    assert [data.broker_name for data in route.brokers] == ["a", "b"]
    assert [member.broker_id for member in route.brokers[0].members] == [0, 1]


def test_every_error_has_a_typed_status() -> None:
    cases: tuple[tuple[TernError, ResponseCode], ...] = (
        (refusal(ResponseCode.TOPIC_NOT_EXIST, "no T"), ResponseCode.TOPIC_NOT_EXIST),
        (IllegalName("topic", "?", "rule"), ResponseCode.INVALID_PARAMETER),
        (Unreachable("nameserver"), ResponseCode.SYSTEM_ERROR),
    )
    for error, code in cases:
        status = converters.status_of(error)
        assert status.code == code
        assert status.remark


def test_doubt_about_an_outcome_survives_conversion() -> None:
    for may_have_happened in (True, False):
        error = refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE, "disk", may_have_happened=may_have_happened
        )
        told = converters.error_of(converters.status_of(error), "b:1")
        assert told.may_have_happened is may_have_happened
        assert (told.code, told.remark, told.peer) == (error.code, "disk", "b:1")
    assert converters.status_of(ConnectionLost("nameserver")).may_have_happened
