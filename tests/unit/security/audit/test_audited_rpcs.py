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
from ternmq_security.audit.audit_lines import DETAILS_CHARS_MAX
from ternmq_security.audit.audited_rpcs import REPORTED, resources_of
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


UNREPORTED: frozenset[Any] = frozenset(
    {
        rpc.GET_TOPIC_ROUTE,
        rpc.GET_CLUSTER,
        rpc.LIST_TOPICS,
        rpc.GET_KV,
        rpc.GET_EPOCH,
        rpc.GET_ACCESS,
        rpc.SEND,
        rpc.SEND_STREAM,
        rpc.PULL,
        rpc.PULL_STREAM,
        rpc.SCAN,
        rpc.VIEW_MESSAGE,
        rpc.QUERY_MESSAGES,
        rpc.LIST_MEMBERS,
        rpc.COMMIT_OFFSETS,
        rpc.QUERY_OFFSET,
        rpc.LOCK_QUEUES,
        rpc.UNLOCK_QUEUES,
        rpc.SEND_BACK,
        rpc.END_TRANSACTION,
        rpc.END_TRANSACTIONS,
        rpc.FIND_TRANSACTIONS,
        rpc.LIST_TRANSACTIONS,
        rpc.QUERY_OFFSET_BY_TIME,
        rpc.MEASURE_QUEUES,
        rpc.DESCRIBE_TOPIC,
        rpc.LIST_GROUPS,
        rpc.DESCRIBE_GROUP,
        rpc.DESCRIBE_BROKER,
        rpc.DESCRIBE_STORE,
        rpc.DESCRIBE_CONSUMER,
        rpc.LIST_PRODUCERS,
        rpc.DESCRIBE_STATISTICS,
        rpc.LIST_SETTINGS,
        rpc.METADATA,  # tables of a followed master: FOLLOW
        rpc.REPLICATION_STATUS,
    }
)
"""RPCs that only read, or that applications call for each message: a new RPC belongs to one set."""


def test_every_rpc_is_classified_once() -> None:
    assert {*REPORTED} | UNREPORTED == {*rpc.ALL}
    assert not {*REPORTED} & UNREPORTED


def test_changes_need_admin_or_replicate_and_nothing_else_may_do_them() -> None:
    for method, rule in RULES.items():
        first = next(iter(rule(method.request())), ())
        actions = {need[0] for need in first if need is not None}
        is_privileged = bool(actions) and actions <= {Action.ADMIN, Action.REPLICATE}
        # Without a topic or hello, these two are for everybody who is known.
        if method in REPORTED and method not in (rpc.PUT_TOPICS, rpc.SESSION):
            assert is_privileged, method.name
        if is_privileged and method not in REPORTED:
            is_reading = method.name.startswith(("Get", "List", "Describe"))
            assert is_reading or method in (rpc.METADATA, rpc.REPLICATION_STATUS), method.name


@pytest.mark.parametrize(
    ("method", "request_", "resource", "contents"), ROWS, ids=lambda each: getattr(each, "name", "")
)
def test_resource_and_contents_of_a_change(
    method: Any, request_: Any, resource: str | None, contents: str
) -> None:
    assert resources_of(RULES[method], request_) == resource
    assert REPORTED[method](request_, AccessTable()) == [contents]


@pytest.mark.parametrize("method", REPORTED, ids=lambda each: each.name)
def test_contents_of_an_empty_request_exist(method: Any) -> None:
    assert REPORTED[method](method.request(), AccessTable())


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
    former = first_administrator(AccessTable(), User("root", (token,)), "test")
    grant = Grant("shop", Effect.ALLOW, Action.PUBLISH, ResourcePattern(ResourceKind.TOPIC, "T"))
    table = former.with_user(User("shop", (), ("CN=shop",))).with_grant(grant)
    table = table.with_denied_certificate(subject="CN=thief", serial="ff")
    request = nameserver.PutAccessRequest(expected_version=1, table=table.to_json())
    assert REPORTED[rpc.PUT_ACCESS](request, former) == [
        "version 1 to 4; added grant shop allow publish topic:T; added user shop;"
        " added subject of shop 'CN=shop'; added denial of subject 'CN=thief';"
        " added denial of serial ff"
    ]
    back = replace(former, version=5)
    request = nameserver.PutAccessRequest(expected_version=4, table=back.to_json())
    (removed,) = REPORTED[rpc.PUT_ACCESS](request, table)
    assert "removed user shop" in removed
    (first,) = REPORTED[rpc.PUT_ACCESS](
        nameserver.PutAccessRequest(table=former.to_json()), AccessTable()
    )
    assert f"added token {token.token_id} of root" in first
    assert "added grant root allow admin *" in first
    for secret in (text, text.rpartition(".")[2], token.digest.hex(), token.salt.hex()):
        assert secret not in first
    illegal = nameserver.PutAccessRequest(expected_version=4, table=b'{"users": "a secret"}')
    assert REPORTED[rpc.PUT_ACCESS](illegal, table) == ["version 4 to an illegal table"]


def test_change_of_users_hides_no_row_behind_padding() -> None:
    former = first_administrator(AccessTable(), User("root", (), ("CN=root",)), "test")
    names = [f"pad{number:03}" for number in range(200)]
    users = [User(name, (), (f"CN={name},O={'x' * 900}",)) for name in names]
    grants = [
        Grant(name, Effect.ALLOW, Action.ADMIN, ResourcePattern(None)) for name in [*names, "zz"]
    ]
    table = AccessTable(2, (*former.users, *users, User("zz")), (*former.grants, *grants))
    request = nameserver.PutAccessRequest(expected_version=1, table=table.to_json())
    parts = REPORTED[rpc.PUT_ACCESS](request, former)
    assert all(len(each) <= DETAILS_CHARS_MAX for each in parts)
    assert all(each.startswith("version 1 to 2; added ") for each in parts)
    rows = [row for part in parts for row in part.split("; ")[1:]]
    assert [row for row in rows if row.startswith("added grant")] == rows[: len(grants)]
    assert "added grant zz allow admin *" in rows
    assert "added user zz" in rows
    assert len(rows) == len(grants) + 2 * len(names) + 1


def test_token_that_is_replaced_under_its_id_is_a_change() -> None:
    _, token = new_token("root", b"r" * 32, b"s" * 16, 0)
    former = first_administrator(AccessTable(), User("root", (token,)), "test")
    changed = User("root", (replace(token, digest=b"d" * 32),))
    request = nameserver.PutAccessRequest(
        expected_version=1, table=replace(former, version=2, users=(changed,)).to_json()
    )
    assert REPORTED[rpc.PUT_ACCESS](request, former) == [
        f"version 1 to 2; changed token {token.token_id} of root"
    ]
