"""Traced listeners."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_client.telemetry.telemetry import Telemetry
from ternmq_consumer.listener.traced_listener import traced_listener
from ternmq_model.stored_message import StoredMessage
from ternmq_runtime.blocking_pool import name_of


def bill(message: StoredMessage) -> None: ...


async def bill_async(message: StoredMessage) -> None: ...


class Biller:
    def __call__(self, message: StoredMessage) -> None: ...


@pytest.mark.parametrize("listener", [bill, bill_async, partial(bill), Biller()])
def test_traced_listener_has_the_name_of_the_applications(listener: Callable[..., Any]) -> None:
    client = ClientTelemetry(Telemetry(TracerProvider()), lambda: 0.0, Random(1))
    assert name_of(traced_listener(listener, "one", client, "G")) == name_of(listener)
