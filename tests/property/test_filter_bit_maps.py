"""With bit maps beside the units and without them, a group reads the same messages."""

import asyncio
from dataclasses import replace
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, SessionStream, bodies, world
from tests.support.examples import examples

Step: TypeAlias = tuple[str, Any, Any]

CONDITIONS = ("a > 5", "a <= 5", "b = 'x'", "a IS NULL")

groups_named = st.sampled_from(("G", "G", "H"))
changes = st.one_of(
    st.tuples(st.just("join"), groups_named, st.sampled_from(CONDITIONS)),
    st.tuples(st.just("join"), groups_named, st.sampled_from(CONDITIONS)),
    st.tuples(st.just("leave"), groups_named, st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)
sends = st.tuples(
    st.just("send"), st.none() | st.sampled_from((4, 5, 6)), st.sampled_from(("x", "y"))
)
phases = st.lists(
    st.tuples(changes, st.integers(0, 2), st.lists(sends, max_size=3)), min_size=1, max_size=6
)
"""Somebody comes, goes or changes; some time passes; messages are sent; in turns."""


def is_true(condition: str, number: int | None, word: str) -> bool:
    """Return what the condition is of a message: worked out without the product's help."""
    return {
        "a > 5": number is not None and number > 5,
        "a <= 5": number is not None and number <= 5,
        "b = 'x'": word == "x",
        "a IS NULL": number is None,
    }[condition]


class Play:
    """One broker, restarted now and then, and what was sent to it."""

    def __init__(self) -> None:
        self.sent: list[tuple[int | None, str]] = []
        self.sessions: dict[str, SessionStream] = {}
        self.version = 0

    async def step(self, client: Client, step: tuple[str, Any, Any]) -> None:
        what, first, second = step
        if what == "send":
            properties = {"b": second} | ({} if first is None else {"a": str(first)})
            await client.send("A", b"%d" % len(self.sent), properties=properties)
            self.sent.append((first, second))
        elif what == "join":
            await self.leave(first)
            self.version += 1
            wanted = messages.Subscription(
                topic="A", expression_type="SQL92", expression=second, version_ms=self.version
            )
            group = groups.ConsumerGroup(group=first, subscriptions=[wanted])
            self.sessions[first], _ = await client.open_session(f"{first}@1", group)
        elif what == "leave":
            await self.leave(first)
        elif what == "wait":
            await asyncio.sleep(first / 1000)
        elif what == "read":
            await self.read(client, first, second)

    async def leave(self, group: str) -> None:
        stream = self.sessions.pop(group, None)
        if stream is not None:
            await stream.write(groups.SessionRequest(goodbye=groups.Goodbye()))
            await stream.read()

    async def read(self, client: Client, group: str, condition: str) -> None:
        wanted = messages.Subscription(expression_type="SQL92", expression=condition)
        offset, found = 0, list[bytes]()
        while offset < len(self.sent):
            reply = await client.pull("A", offset, group=group, subscription=wanted)
            found += bodies(reply)
            assert reply.next_offset > offset
            offset = reply.next_offset
        assert found == [
            b"%d" % row
            for row, (number, word) in enumerate(self.sent)
            if is_true(condition, number, word)
        ]


@settings(max_examples=examples(60))
@given(script=phases, is_cold=st.booleans())
def test_bit_maps_never_hide_a_message(
    script: list[tuple[Step, int, list[Step]]], is_cold: bool
) -> None:
    async def main() -> None:
        memory_bytes = 1 if is_cold else 1 << 30
        async with world(filter_bit_maps_enabled=True, memory_bytes=memory_bytes) as around:
            around.store_config = replace(SMALL_STORE, consume_queue_ext_enabled=True)
            play = Play()
            rest: list[Step] = []
            for change, pause_ms, sent in script:
                rest += [change, ("wait", pause_ms, None), *sent, ("wait", pause_ms, None)]
            rest += [("read", group, text) for group in "GH" for text in CONDITIONS]
            while rest:
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await client.put_topic("A", 1)
                    while rest and (step := rest.pop(0))[0] != "restart":
                        await play.step(client, step)
                    play.sessions.clear()
                    await client.connection.close()

    run_in_virtual_time(main())
