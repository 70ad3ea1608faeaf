"""Likely mistakes: each is refused at once with what to write, and seen by mypy and pyright.

Both check this file, and complain about an `ignore` that hides nothing: a slip that one of them no
longer sees fails `make types`.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest

from ternmq import (
    AdminClient,
    BlockingProducer,
    BlockingPullConsumer,
    ClientConfig,
    ConfigError,
    ConsumeFrom,
    IllegalMessage,
    IllegalName,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    PushConsumerConfig,
    RefusedError,
    Resolution,
    SendInterceptor,
    StoredMessage,
    TransactionProducer,
    UsageError,
)

PLACE = "127.0.0.1:9876"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def nothing() -> None: ...


async def refused_async(_error: RefusedError) -> None: ...


async def two(_a: StoredMessage, _b: StoredMessage) -> None: ...


MESSAGES: list[tuple[Callable[[], Message], str]] = [
    (
        lambda: Message(
            "orders",
            "text",  # type: ignore[arg-type]
        ),
        "body is str, must be bytes: write body.encode()",
    ),
    (
        lambda: Message(
            "orders",
            None,  # type: ignore[arg-type]
        ),
        "body is NoneType, must be bytes",
    ),
    (
        lambda: Message(
            None,  # type: ignore[arg-type]
            b"",
        ),
        "topic None: must be a string",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            tags=["a"],  # type: ignore[arg-type]
        ),
        "tags is one tag, as a string, not ['a']",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            keys="a1",  # type: ignore[arg-type]
        ),
        "keys='a1': must be a list, such as ['a1']",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            keys=7,  # type: ignore[arg-type]
        ),
        "keys=7: must be a list",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            properties={"a": 1},  # type: ignore[dict-item]
        ),
        "property 'a'=1: both must be strings",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            properties="a=1",  # type: ignore[arg-type]
        ),
        "properties='a=1': must be a dict",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            flag=1.5,  # type: ignore[arg-type]
        ),
        "flag 1.5 is not a whole number",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            delay_level="3",  # type: ignore[arg-type]
        ),
        "delay_level is '3', must be a delay level",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            deliver_at_ms=NOON,  # type: ignore[arg-type]
        ),
        "write int(when.timestamp() * 1000)",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            deliver_after_ms=timedelta(1),  # type: ignore[arg-type]
        ),
        "write int(span.total_seconds() * 1000)",
    ),
    (
        lambda: Message(
            ["orders"],  # type: ignore[arg-type]
            b"",
        ),
        "topic ['orders']: must be a string",
    ),
    (
        lambda: Message(
            "orders",
            b"",
            properties=None,  # type: ignore[arg-type]
        ),
        "properties=None: must be a dict of strings, {} where there are none",
    ),
    # No type tells seconds from milliseconds.
    (
        lambda: Message("orders", b"", deliver_at_ms=1_800_000_000),
        "is 1970-01-21 in Unix milliseconds; multiply seconds by 1000",
    ),
]


class Kind(StrEnum):
    A = "a"


def keys_of_any_kind(
    texts: Sequence[str], kinds: list[Kind], some: frozenset[str], by_key: dict[str, Kind]
) -> list[Message]:
    """Messages that type checkers accept."""
    return [Message("t", b"", keys=keys) for keys in (texts, kinds, some, by_key.keys(), {"a"})]


def test_keys_may_be_any_collection_but_a_string() -> None:
    for message in keys_of_any_kind(["a"], [Kind.A], frozenset("a"), {"a": Kind.A}):
        assert message.encoded_properties() == b"KEYS\x01a\x02"


CONSTRUCTIONS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: Producer(
            None,  # type: ignore[arg-type]
        ),
        "group None: must be a string",
    ),
    (
        lambda: Producer(
            "shop",
            nameserver=9876,  # type: ignore[arg-type]
        ),
        'must be a text such as "127.0.0.1:9876"',
    ),
    (
        lambda: ClientConfig(
            nameservers=PLACE,  # type: ignore[arg-type]
        ),
        "must be a tuple: ('127.0.0.1:9876',)",
    ),
    (
        lambda: Producer(
            "shop",
            client=PLACE,  # type: ignore[arg-type]
        ),
        "an address is given as nameserver='127.0.0.1:9876'",
    ),
    (
        lambda: BlockingProducer(
            "shop",
            config=ClientConfig(),  # type: ignore[arg-type]
        ),
        "must be a ProducerConfig; a ClientConfig is given as client=",
    ),
    (
        lambda: PullConsumer(
            "bills",
            config=PushConsumerConfig(),  # type: ignore[arg-type]
        ),
        "must be a PullConsumerConfig",
    ),
    (
        lambda: BlockingPullConsumer(
            "bills",
            client=ProducerConfig(),  # type: ignore[arg-type]
        ),
        "must be a ClientConfig",
    ),
    (
        lambda: AdminClient(
            PLACE,  # type: ignore[arg-type]
        ),
        "an address is given as nameserver='127.0.0.1:9876'",
    ),
    (
        lambda: ProducerConfig(
            send_timeout_s="3",  # type: ignore[arg-type]
        ),
        "producer.send_timeout_s='3': must be seconds, a number",
    ),
    (
        lambda: ClientConfig(
            heartbeat_s=timedelta(1),  # type: ignore[arg-type]
        ),
        "must be seconds: write span.total_seconds()",
    ),
    (
        lambda: PushConsumerConfig(
            workers="4",  # type: ignore[arg-type]
        ),
        "consumer.workers='4': must be a whole number",
    ),
    (
        lambda: PushConsumerConfig(
            consume_from="FIRST_OFFSET",  # type: ignore[arg-type]
        ),
        "must be one of ConsumeFrom.LAST_OFFSET",
    ),
    (
        lambda: PushConsumerConfig(
            consume_from=ConsumeFrom.TIMESTAMP,
            consume_at_ms=NOON,  # type: ignore[arg-type]
        ),
        "write int(when.timestamp() * 1000)",
    ),
    (
        lambda: PushConsumerConfig(consume_from=ConsumeFrom.TIMESTAMP, consume_at_ms=1_800_000_000),
        "multiply seconds by 1000",
    ),
    (
        lambda: PushConsumer(
            "bills",
            ["orders"],  # type: ignore[list-item]
        ),
        "must be one topic, such as 'orders', or tags or a condition by topic: {'orders': '*'}",
    ),
    (
        lambda: PushConsumer(
            "bills",
            {"orders": ["eu", "jp"]},  # type: ignore[dict-item]
        ),
        "['eu', 'jp'] must be tags, such as 'eu || jp'",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            listener=5,  # type: ignore[arg-type]
        ),
        "listener=5 must be a function",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            listener=nothing,  # type: ignore[arg-type]
        ),
        "must take one argument",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            listener=two,  # type: ignore[arg-type]
        ),
        "must take one argument",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            batch_listener=5,  # type: ignore[arg-type]
        ),
        "batch_listener=5 must be a function",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            on_refused="log",  # type: ignore[arg-type]
        ),
        "on_refused='log' must be a function",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            on_refused=None,  # type: ignore[arg-type]
        ),
        "on_refused=None must be a function",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            on_refused=refused_async,  # type: ignore[arg-type]
        ),
        "must be a plain function: its result is not awaited",
    ),
    (
        lambda: TransactionProducer(
            "shop",
            execute=lambda _message, _argument: Resolution.COMMIT,
            check=None,  # type: ignore[arg-type]
        ),
        "check=None must be a function",
    ),
    (
        lambda: Producer(
            "shop",
            interceptors=[SendInterceptor],  # type: ignore[list-item]
        ),
        "is a class: give an instance, SendInterceptor()",
    ),
    (
        lambda: ClientConfig(
            nameservers=5,  # type: ignore[arg-type]
        ),
        'client.nameservers=5: must be a text such as "127.0.0.1:9876"',
    ),
    (
        lambda: ProducerConfig(
            template_topic=5,  # type: ignore[arg-type]
        ),
        "producer.template_topic=5: must be a string",
    ),
    (
        lambda: ProducerConfig(send_timeout_s=float("inf")),
        "producer.send_timeout_s=inf: must be seconds, a finite number",
    ),
    (
        lambda: PushConsumerConfig(
            allocate=lambda queues: queues,  # type: ignore[arg-type, misc]
        ),
        "must take 3 arguments",
    ),
    (
        lambda: Producer(
            "shop",
            interceptors=[5],  # type: ignore[list-item]
        ),
        "interceptors=5 has no method before_send and after_send",
    ),
    (
        lambda: PushConsumer(
            "bills",
            "orders",
            interceptors=5,  # type: ignore[arg-type]
        ),
        "must be a list of interceptors",
    ),
    (
        lambda: TransactionProducer(
            "shop",
            execute=5,  # type: ignore[arg-type]
            check=lambda _: Resolution.COMMIT,
        ),
        "execute=5 must be a function",
    ),
    (
        lambda: TransactionProducer(
            "shop",
            execute=lambda _message, _argument: Resolution.COMMIT,
            check=two,  # type: ignore[arg-type]
        ),
        "must take one argument",
    ),
]


@pytest.mark.parametrize(("make", "told"), MESSAGES, ids=[told for _, told in MESSAGES])
def test_wrong_message_is_refused_with_what_to_write(
    make: Callable[[], Message], told: str
) -> None:
    with pytest.raises((IllegalMessage, IllegalName)) as refused:
        make().encoded_properties()
    assert told in str(refused.value)


@pytest.mark.parametrize(("make", "told"), CONSTRUCTIONS, ids=[told for _, told in CONSTRUCTIONS])
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_wrong_argument_is_refused_with_what_to_write(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert told in str(refused.value)


def test_answer_that_is_none_is_seen_by_type_checkers() -> None:
    # What it comes to at run time: tests/unit/consumer/listener/test_listener_call.py.
    PushConsumer(
        "bills",
        "orders",
        listener=lambda _: "done",  # type: ignore[arg-type, return-value]
    )


OLD_NAMES: list[tuple[Callable[[ClientConfig], Any], str]] = [
    (lambda old: PushConsumer("g", "t", client_config=old), "client_config"),
    (lambda old: PullConsumer("g", client_config=old), "client_config"),
    (lambda old: BlockingPullConsumer("g", client_config=old), "client_config"),
    (lambda old: AdminClient(old), "config"),
    (lambda old: AdminClient(config=old), "config"),
]


@pytest.mark.parametrize(("make", "name"), OLD_NAMES)
def test_old_name_warns_its_caller_and_works(
    make: Callable[[ClientConfig], Any], name: str
) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name}= is deprecated: write client=") as told:
        made = make(ClientConfig(instance_name="old"))
    assert told[0].filename == __file__
    inner: Any = getattr(made, "_client", made)
    inner = getattr(inner, "_client", inner)
    assert (inner._config if isinstance(made, AdminClient) else inner.config).instance_name == "old"


def test_old_name_beside_the_new_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="old name of client"):
        PushConsumer("g", "t", client=ClientConfig(), client_config=ClientConfig())
