from typing import Any, cast

import pytest

from ternmq_model.errors import InvalidParameter, RefusedError
from ternmq_producer.transactions.transaction_stream import ROWS_MAX
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.request_parser import (
    ELEMENTS_MAX,
    UnparsableRequest,
    check_range,
    enum_check,
    request_parser,
)


def hello(**fields: int) -> bytes:
    member = groups.ConsumerGroup(group="G")
    for name, value in fields.items():
        setattr(member, name, value)
    return groups.SessionRequest(hello=groups.Hello(consumer_groups=[member])).SerializeToString()


def test_request_with_known_numbers_is_parsed() -> None:
    parse = request_parser(groups.SessionRequest)
    parsed = parse(hello(model=groups.BROADCASTING, consume_from=groups.TIMESTAMP))
    assert parsed.hello.consumer_groups[0].model == groups.BROADCASTING
    assert parse(b"") == groups.SessionRequest()


@pytest.mark.parametrize("name", ["model", "consume_from"])
@pytest.mark.parametrize("number", [-1, 4, 2**31 - 1])
def test_unknown_number_at_any_depth_is_refused_by_name(name: str, number: int) -> None:
    with pytest.raises(InvalidParameter, match=f"{name} {number}: must be one of 0 .* 2 "):
        request_parser(groups.SessionRequest)(hello(**{name: number}))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(UnparsableRequest, match="the bytes are no SendRequest"):
        request_parser(messages.SendRequest)(b"\xff" * 9)


@pytest.mark.parametrize("count", [ELEMENTS_MAX + 1, 1_000_000])
def test_elements_above_the_bound_are_refused_and_not_looked_at(count: int) -> None:
    unknown = transactions.EndTransactionRequest(resolution=cast("Any", 77)).SerializeToString()
    element = bytes([10, len(unknown)]) + unknown
    parse = request_parser(transactions.EndTransactionsRequest)
    with pytest.raises(InvalidParameter, match="resolution 77"):
        parse(element * ELEMENTS_MAX)
    with pytest.raises(InvalidParameter, match=f"transactions: {count} elements; at most 1024"):
        parse(element * count)


def test_elements_up_to_the_bound_are_parsed() -> None:
    told = groups.SessionRequest()
    for _ in range(ELEMENTS_MAX):
        told.hello.consumer_groups.add(group="G", model=groups.BROADCASTING)
    assert request_parser(groups.SessionRequest)(told.SerializeToString()) == told
    told.hello.consumer_groups.add()
    with pytest.raises(InvalidParameter, match="consumer_groups: 1025 elements"):
        request_parser(groups.SessionRequest)(told.SerializeToString())


def test_bound_of_elements_admits_what_producers_end_at_once() -> None:
    assert ELEMENTS_MAX >= ROWS_MAX


def test_messages_without_enums_are_not_searched() -> None:
    assert enum_check(messages.SendStreamRequest.DESCRIPTOR) is None


def test_number_out_of_range_is_named() -> None:
    assert check_range("wait_ms", 5, 0, 10) == 5
    with pytest.raises(RefusedError, match="wait_ms is -1; must be 0 to 10"):
        check_range("wait_ms", -1, 0, 10)
