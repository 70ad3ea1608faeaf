"""Classification of every RPC, and the contents of changes, without secrets."""

from dataclasses import replace
from typing import Any

import pytest

from ternmq_model.permission import Action, ResourceKind
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods as rpc
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.user import User
from ternmq_security.audit.audited_rpcs import CHANGES, UNREPORTED, resources_of
from ternmq_security.rules import RULES
from ternmq_security.tokens import new_token

TOPIC = common.TopicConfig(topic="T", read_queues=4, write_queues=8, permissions=6)
ROWS: tuple[tuple[Any, Any, str | None, str], ...] = (
    (
        rpc.REGISTER_BROKER,
        nameserver.RegisterBrokerRequest(
            cluster="c", broker_name="b", broker_id=1, epoch=2, incarnation="i"
        ),
        "cluster",
        "cluster=c broker_name=b broker_id=1 epoch=2 incarnation=i",
    ),
    (
        rpc.PUT_KV,
        nameserver.PutKvRequest(namespace="n", key="k", value="a secret"),
        "cluster",
        "namespace=n key=k",
    ),
    (
        rpc.PUT_TOPIC,
        admin.PutTopicRequest(topic=TOPIC),
        "topic:T",
        "topic=T read_queues=4 write_queues=8 permissions=6",
    ),
    (
        rpc.PUT_TOPICS,
        admin.PutTopicsRequest(topics=[TOPIC, common.TopicConfig(topic="U")]),
        "topic:T,topic:U",
        "topics=T,U",
    ),
    (rpc.DELETE_TOPIC, admin.DeleteTopicRequest(topic="%RETRY%G"), "group:G", "topic=%RETRY%G"),
    (
        rpc.DELETE_GROUP,
        admin.DeleteGroupRequest(group="G", with_dead_letters=True),
        "group:G",
        "group=G with_dead_letters=True",
    ),
    (
        rpc.RESET_OFFSETS,
        admin.ResetOffsetsRequest(group="G", topic="T", queue_ids=[1, 2], at_ms=7),
        "group:G,topic:T",
        "group=G topic=T queues=1,2 to at_ms=7",
    ),
    (
        rpc.RESET_OFFSETS,
        admin.ResetOffsetsRequest(group="G", topic="T"),
        "group:G,topic:T",
        "group=G topic=T queues=all to nothing",
    ),
    (
        rpc.CLONE_OFFSETS,
        admin.CloneOffsetsRequest(from_group="A", to_group="B"),
        "group:B,group:A",
        "from_group=A to_group=B topic=",
    ),
    (
        rpc.UPDATE_SETTINGS,
        admin.UpdateSettingsRequest(values={"b": "2 3", "a": "1"}),
        "cluster",
        "a='1' b='2 3'",
    ),
    (rpc.CLEAN_STORE, admin.CleanStoreRequest(), "cluster", ""),
    (rpc.PROMOTE, admin.PromoteRequest(is_forced=True), "cluster", "is_forced=True"),
    (
        rpc.ROLL_BACK_STAGED,
        transactions.RollBackStagedRequest(staged_for="q/1"),
        "cluster",
        "staged_for=q/1 force=False",
    ),
    (
        rpc.FOLLOW,
        replication.FollowRequest(
            hello=replication.FollowHello(cluster="c", broker_name="b", broker_id=1)
        ),
        "cluster",
        "cluster=c broker_name=b broker_id=1",
    ),
)


def test_every_rpc_is_classified_once() -> None:
    assert {*CHANGES} | UNREPORTED | {rpc.SESSION} == {*rpc.ALL}
    assert not {*CHANGES} & UNREPORTED


def test_changes_need_admin_or_replicate_and_nothing_else_may_do_them() -> None:
    for method, rule in RULES.items():
        first = next(iter(rule(method.request())), ())
        actions = {need[0] for need in first if need is not None}
        is_privileged = bool(actions) and actions <= {Action.ADMIN, Action.REPLICATE}
        if method in CHANGES and method is not rpc.PUT_TOPICS:  # known to all without a topic
            assert is_privileged, method.name
        if is_privileged and method not in CHANGES:
            is_reading = method.name.startswith(("Get", "List", "Describe"))
            assert is_reading or method in (rpc.METADATA, rpc.REPLICATION_STATUS), method.name


@pytest.mark.parametrize(
    ("method", "request_", "resource", "contents"), ROWS, ids=lambda each: getattr(each, "name", "")
)
def test_resource_and_contents_of_a_change(
    method: Any, request_: Any, resource: str | None, contents: str
) -> None:
    assert resources_of(RULES[method], request_) == resource
    assert CHANGES[method](request_, AccessTable()) == contents


@pytest.mark.parametrize("method", CHANGES, ids=lambda each: each.name)
def test_contents_of_an_empty_request_exist(method: Any) -> None:
    assert isinstance(CHANGES[method](method.request(), AccessTable()), str)


def test_resources_beyond_twenty_are_counted() -> None:
    topics = [common.TopicConfig(topic=f"T{number}") for number in range(23)]
    found = resources_of(RULES[rpc.PUT_TOPICS], admin.PutTopicsRequest(topics=topics))
    assert found is not None
    assert found.startswith("topic:T0,topic:T1,")
    assert found.endswith(",topic:T19 and 3 more")


def test_resources_of_a_call_for_everybody_are_none() -> None:
    assert resources_of(RULES[rpc.GET_CLUSTER], nameserver.GetClusterRequest()) is None
    hello = groups.Hello(
        consumer_groups=[
            groups.ConsumerGroup(group="G", subscriptions=[messages.Subscription(topic="T")])
        ]
    )
    request = groups.SessionRequest(hello=hello)
    assert resources_of(RULES[rpc.SESSION], request) == "group:G,topic:T"


def test_change_of_users_is_told_by_names_and_without_hashes() -> None:
    text, token = new_token("root", b"r" * 32, b"s" * 16, 0)
    former = first_administrator(AccessTable(), User("root", (token,)))
    grant = Grant("shop", Effect.ALLOW, Action.PUBLISH, ResourcePattern(ResourceKind.TOPIC, "T"))
    table = former.with_user(User("shop", (), ("CN=shop",))).with_grant(grant)
    table = table.with_denied_certificate(subject="CN=thief", serial="ff")
    request = nameserver.PutAccessRequest(expected_version=1, table=table.to_json())
    found = CHANGES[rpc.PUT_ACCESS](request, former)
    assert found == (
        "version 1 to 4; added user shop; added subject 'CN=shop' of shop;"
        " added grant shop allow publish topic:T; added denial of subject 'CN=thief';"
        " added denial of serial ff"
    )
    back = replace(former, version=5)
    request = nameserver.PutAccessRequest(expected_version=4, table=back.to_json())
    removed = CHANGES[rpc.PUT_ACCESS](request, table)
    assert "removed user shop" in removed
    first = CHANGES[rpc.PUT_ACCESS](
        nameserver.PutAccessRequest(table=former.to_json()), AccessTable()
    )
    assert f"added token {token.token_id} of root" in first
    assert "added grant root allow admin *" in first
    for secret in (text, text.rpartition(".")[2], token.digest.hex(), token.salt.hex()):
        assert secret not in first
    illegal = nameserver.PutAccessRequest(expected_version=4, table=b'{"users": "a secret"}')
    assert CHANGES[rpc.PUT_ACCESS](illegal, table) == "version 4 to an illegal table"
