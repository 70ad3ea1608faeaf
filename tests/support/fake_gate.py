"""A gate for callers with a word in their metadata."""

import asyncio
from collections.abc import Mapping

from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import Call


class FakeGate:
    """Admits callers whose metadata has the word.

    Attributes:
        is_open: Everybody may call.
        word: Key and value in the metadata of those who are admitted.
        known: Values that were admitted.
        asked: Values that had to be admitted, in order.
        goes_on: Admissions wait for it.
    """

    def __init__(self, key: str = "word", value: str = "friend") -> None:
        self.is_open = False
        self.word = (key, value)
        self.known: set[str] = set()
        self.asked: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def knows(self, metadata: Mapping[str, str]) -> bool:
        """Tell whether the caller was admitted before."""
        return metadata.get(self.word[0]) in self.known

    async def admit(self, call: Call, path: str) -> None:
        """Admit a caller with the word."""
        key, wanted = self.word
        value = call.metadata.get(key, "")
        self.asked.append(value)
        await self.goes_on.wait()
        if value != wanted:
            raise refusal(ResponseCode.NO_PERMISSION, "say the word")
        self.known.add(value)
