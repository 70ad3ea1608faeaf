"""A TCP relay that a test can cut, silence or leave hanging, for faults that only sockets have."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from ternmq_model.address import Address


class CutWire:
    """Relays bytes to `target`. Owned by its `async with` block.

    Attributes:
        address: What to dial.
    """

    address: Address

    def __init__(self, target: Address) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self._silent = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cut()

    async def cut(self) -> None:
        """Reset every connection and take no more."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    def silence(self) -> None:
        """Swallow every byte from here on, both ways, as a machine that lost its power does."""
        self._silent = True

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers += [writer, far_writer]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(reader, far_writer))
            group.create_task(self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if not self._silent:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
