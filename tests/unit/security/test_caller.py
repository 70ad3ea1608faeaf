"""Texts of refusals: user, action and resource."""

import pytest

from ternmq_model.errors import PermissionRefused
from ternmq_model.permission import (
    CLUSTER,
    Action,
    Need,
    of_group,
    to_know_group,
    to_publish,
    to_read,
)
from ternmq_security.caller import CallerIdentity
from tests.support.identities import Granted


@pytest.mark.parametrize(
    ("name", "alternatives", "text"),
    [
        ("shop", [to_publish("orders")], "user 'shop' may not publish to topic:orders"),
        ("shop", [of_group("g")], "user 'shop' may not subscribe to group:g"),
        ("shop", [(Action.REPLICATE, CLUSTER)], "user 'shop' may not replicate cluster"),
        (
            "shop",
            [to_read("a"), (Action.ADMIN, CLUSTER)],
            "user 'shop' may not subscribe to topic:a",
        ),
        (
            "shop",
            to_know_group("g"),
            "user 'shop' may not subscribe to or administer group:g",
        ),
        ("gone", [None], "user 'gone' may not call this service"),
        (None, [None], "an unknown identity may not call this service: give credentials"),
        (
            None,
            [to_publish("orders")],
            "an unknown identity may not publish to topic:orders: give credentials",
        ),
    ],
)
def test_refusal_names_user_action_and_resource(
    name: str | None, alternatives: list[Need | None], text: str
) -> None:
    with pytest.raises(PermissionRefused) as refused:
        CallerIdentity(name, Granted(is_known=False)).check(*alternatives)
    assert refused.value.remark == text
    assert not refused.value.may_have_happened


def test_caller_needs_one_of_the_alternatives() -> None:
    caller = CallerIdentity("shop", Granted(to_read("a")))
    caller.check(to_publish("a"), to_read("a"))
    assert caller.allows(to_read("a"))
    assert not caller.allows(to_publish("a"))
