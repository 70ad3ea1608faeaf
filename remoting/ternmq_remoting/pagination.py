"""Pagination of long lists. A page's token names the item it goes on behind: nobody keeps state.

A request has `page_size` and `page_token`, its reply `next_page_token`. A caller that knows of no
pages sends 0 and gets everything, as long as it fits one message.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message as ProtoMessage

from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX

logger = logging.getLogger(__name__)

PAGE_SIZE: Final = 1_000
"""Page size that our own clients ask for."""

PAGE_SIZE_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 1 << 20
PAGES_MAX: Final = 1 << 16
"""Most pages of one list that we ask for: 65 million names."""

T = TypeVar("T")
Req = TypeVar("Req", bound=ProtoMessage)
Rep = TypeVar("Rep", bound=ProtoMessage)


def items_wanted(page_size: int) -> int | None:
    """Return how many items to look for: a page, and the one that tells of the next. None = all.

    Raises:
        InvalidParameter: The size is negative.
    """
    if page_size < 0:
        raise refusal(
            ResponseCode.INVALID_PARAMETER, f"page_size {page_size}: must not be negative"
        )
    return min(page_size, PAGE_SIZE_MAX) + 1 if page_size else None


def page_of(
    found: Iterable[T], page_size: int, bytes_of: Callable[[T], int]
) -> tuple[list[T], bool]:
    """Return the page that begins with the first item, and whether another one follows.

    A page has at least one item and ends before 10,001, or before it is larger than 1 MiB.

    Args:
        found: What lies behind the page before, in order.
        page_size: As it was asked for.
        bytes_of: Tells the bytes of an item on the wire.

    Raises:
        InvalidParameter: The size is negative, or everything was asked for and does not fit.
    """
    wanted = items_wanted(page_size)
    page: list[T] = []
    size = 0
    for item in found:
        size += _field_bytes(bytes_of(item))
        if wanted is None and size > MESSAGE_BYTES_MAX:
            remark = (
                f"the list is over {MESSAGE_BYTES_MAX} bytes, which fit a message: tell page_size"
            )
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        if wanted is not None and page and (len(page) + 1 == wanted or size > PAGE_BYTES_MAX):
            return page, True
        page.append(item)
    return page, False


def _field_bytes(size: int) -> int:
    """Return what an item takes in a repeated field: a tag, its length in groups of 7 bits, it."""
    return 1 + max(1, -(-size.bit_length() // 7)) + size


def token_of(*names: str) -> str:
    """Return what names an item; only the last name may have blanks."""
    return " ".join(names)


def names_of(token: str, count: int) -> tuple[str, ...]:
    """Return the names of the item behind which a page begins; empty ones for the first page.

    Raises:
        InvalidParameter: It is no token.
    """
    names = token.split(" ", count - 1) if token else [""] * count
    if len(names) != count:
        raise refusal(ResponseCode.INVALID_PARAMETER, f"page_token {token[:100]!r}: is none")
    return tuple(names)


async def pages(ask: Callable[[Req], Awaitable[Rep]], request: Req) -> AsyncGenerator[Rep]:
    """Yield the replies to a request for a list, page by page.

    A peer that knows of no pages answers with one reply. One whose tokens do not rise, or that goes
    on for 65,536 pages, is not asked further, and logged: its list would need not end.

    Args:
        ask: Asks for one page.
        request: What is to be listed; its page is told here.
    """
    asked: Any = request
    asked.page_size = PAGE_SIZE
    for _ in range(PAGES_MAX):
        reply: Any = await ask(request)
        yield reply
        if not reply.next_page_token:
            return
        if reply.next_page_token <= asked.page_token:
            break
        asked.page_token = reply.next_page_token
    logger.warning("list ends before its end token=%r", asked.page_token[:100])
