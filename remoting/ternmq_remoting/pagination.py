"""Pagination of long lists, without state: a page's token names the item before the page.

A request has `page_size` and `page_token`, and its reply `next_page_token`. A caller without
support for pages sends size 0 and gets the whole list, if it fits one message.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message as ProtoMessage

from ternmq_model.errors import invalid
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX

logger = logging.getLogger(__name__)

PAGE_SIZE: Final = 1_000
"""Page size in requests of TernMQ's clients."""

PAGE_SIZE_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 1 << 20
PAGES_MAX: Final = 1 << 16
"""Most pages of one list that a client reads: 65 million names."""

T = TypeVar("T")
Req = TypeVar("Req", bound=ProtoMessage)
Rep = TypeVar("Rep", bound=ProtoMessage)


def items_wanted(page_size: int) -> int | None:
    """Return the number of items to find: a page and one more item; None = all.

    Raises:
        InvalidParameter: The size is negative.
    """
    if page_size < 0:
        raise invalid(f"page_size {page_size}: must not be negative")
    return min(page_size, PAGE_SIZE_MAX) + 1 if page_size else None


def page_of(
    found: Iterable[T], page_size: int, bytes_of: Callable[[T], int]
) -> tuple[list[T], bool]:
    """Return the page that begins with the first item, and whether another page follows.

    A page has at least one item, at most 10,000 items, and at most 1 MiB if it has several.

    Args:
        found: Items behind the page before, in order.
        page_size: Page size in the request.
        bytes_of: Function that returns the bytes of an item on the wire.

    Raises:
        InvalidParameter: The size is negative, or a request for the whole list does not fit.
    """
    limit = items_wanted(page_size)
    page: list[T] = []
    size = 0
    for item in found:
        size += _field_bytes(bytes_of(item))
        if limit is None and size > MESSAGE_BYTES_MAX:
            raise invalid(
                f"the list is over {MESSAGE_BYTES_MAX} bytes, the limit of a message: set page_size"
            )
        if limit is not None and page and (len(page) + 1 == limit or size > PAGE_BYTES_MAX):
            return page, True
        page.append(item)
    return page, False


def _field_bytes(size: int) -> int:
    """Return what an item takes in a repeated field: a tag, its length in groups of 7 bits, it."""
    return 1 + max(1, -(-size.bit_length() // 7)) + size


def token_of(*names: str) -> str:
    """Return the token of an item. Only the last name may have blanks."""
    return " ".join(names)


def names_of(token: str) -> tuple[str, str]:
    """Return the two names of the item before a page; empty names for the first page.

    Raises:
        InvalidParameter: The text is no token.
    """
    first, blank, second = token.partition(" ")
    if token and not blank:
        raise invalid(f"page_token {token[:100]!r}: is no page token")
    return first, second


async def pages(ask: Callable[[Req], Awaitable[Rep]], request: Req) -> AsyncGenerator[Rep]:
    """Yield the replies to a request for a list, page by page.

    A peer without support for pages answers with one reply. The list ends with a log line if the
    tokens do not rise or after 65,536 pages: such a list may have no end.

    Args:
        ask: Coroutine function that requests one page.
        request: Request of the list. This function sets its page.
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
