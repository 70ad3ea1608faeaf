import asyncio

import pytest

from ternmq_model.errors import InvalidParameter
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX
from ternmq_remoting.pagination import (
    PAGE_BYTES_MAX,
    PAGE_SIZE,
    PAGE_SIZE_MAX,
    items_wanted,
    names_of,
    page_of,
    pages,
    token_of,
)

NAMES = [f"{number:06}" for number in range(30_000)]


def test_page_ends_with_its_size_and_tells_of_the_next() -> None:
    assert page_of(NAMES, 2, len) == (NAMES[:2], True)
    assert page_of(NAMES[:2], 2, len) == (NAMES[:2], False)
    assert page_of([], 2, len) == ([], False)
    assert page_of(NAMES, 1 << 30, len) == (NAMES[:PAGE_SIZE_MAX], True)
    assert items_wanted(2) == 3


def test_page_ends_with_its_bytes_and_has_one_item_at_least() -> None:
    large = ["x" * (PAGE_BYTES_MAX // 2 - 10)] * 3
    assert page_of(large, 10, len) == (large[:2], True)
    assert page_of(["x" * 2 * PAGE_BYTES_MAX, "y"], 10, len) == (["x" * 2 * PAGE_BYTES_MAX], True)


def test_list_without_pages_is_whole_as_long_as_it_fits_a_message() -> None:
    assert page_of(NAMES, 0, len) == (NAMES, False)
    name = "x" * 126
    count = MESSAGE_BYTES_MAX // 128
    assert len(page_of([name] * count, 0, len)[0]) == count
    reply = nameserver.ListTopicsReply(topics=[name] * count)
    assert reply.ByteSize() == MESSAGE_BYTES_MAX
    with pytest.raises(InvalidParameter, match="set page_size"):
        page_of([name] * (count + 1), 0, len)
    with pytest.raises(InvalidParameter, match="page_size -1"):
        page_of(NAMES, -1, len)


def test_token_names_its_item_and_another_text_is_refused() -> None:
    assert names_of(token_of("group", "client with blanks")) == ("group", "client with blanks")
    assert names_of("") == ("", "")
    with pytest.raises(InvalidParameter, match="page_token 'group': is no page token"):
        names_of("group")


def test_caller_asks_until_the_last_page_and_a_peer_without_pages_once() -> None:
    asked: list[tuple[int, str]] = []

    async def main() -> None:
        async def paged(request: nameserver.ListTopicsRequest) -> nameserver.ListTopicsReply:
            asked.append((request.page_size, request.page_token))
            behind = (name for name in NAMES[:2_500] if name > request.page_token)
            page, has_more = page_of(behind, request.page_size, len)
            return nameserver.ListTopicsReply(
                topics=page, next_page_token=page[-1] if has_more else ""
            )

        async def whole(_: nameserver.ListTopicsRequest) -> nameserver.ListTopicsReply:
            return nameserver.ListTopicsReply(topics=NAMES)

        request = nameserver.ListTopicsRequest(cluster="c")
        found = [name async for reply in pages(paged, request) for name in reply.topics]
        assert found == NAMES[:2_500]
        assert asked == [(PAGE_SIZE, ""), (PAGE_SIZE, NAMES[999]), (PAGE_SIZE, NAMES[1_999])]
        replies = [reply async for reply in pages(whole, nameserver.ListTopicsRequest())]
        assert [len(reply.topics) for reply in replies] == [30_000]

    asyncio.run(main())


@pytest.mark.parametrize("tokens", ["tttt", "tutu", "utut"])
def test_list_ends_when_tokens_do_not_rise(tokens: str) -> None:
    async def main() -> None:
        left = list(tokens * 10)

        async def stuck(_: nameserver.ListTopicsRequest) -> nameserver.ListTopicsReply:
            return nameserver.ListTopicsReply(topics=["a"], next_page_token=left.pop(0))

        assert len([each async for each in pages(stuck, nameserver.ListTopicsRequest())]) <= 3

    asyncio.run(main())


def test_list_ends_however_long_tokens_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ternmq_remoting.pagination.PAGES_MAX", 50)

    async def main() -> None:
        async def endless(asked: nameserver.ListTopicsRequest) -> nameserver.ListTopicsReply:
            return nameserver.ListTopicsReply(topics=["a"], next_page_token=asked.page_token + "a")

        assert len([each async for each in pages(endless, nameserver.ListTopicsRequest())]) == 50

    asyncio.run(main())
