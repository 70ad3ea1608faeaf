import asyncio
from typing import Any

import pytest

from ternmq_console.access.cluster_access import change_access, read_access
from ternmq_model.errors import PermissionRefused, RefusedError, UsageError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_security.access.access_table import AccessTable
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.access_admin import AccessAdmin


def changed(admin: Any) -> AccessTable:
    async def main() -> AccessTable:
        return await change_access(admin, lambda table: table.with_denied_certificate(serial="f"))

    return run_in_virtual_time(main())


def test_change_is_repeated_on_the_table_of_others() -> None:
    server = AccessAdmin("1", "2")
    assert changed(server) == server.table
    assert (server.table.denied_serials, server.sent) == (("1", "2", "f"), 3)
    assert changed(server) == server.table
    assert server.sent == 3, "nothing to change"


def test_change_that_others_always_precede_is_a_clear_error() -> None:
    server = AccessAdmin(*map(str, range(100, 200)))
    with pytest.raises(RefusedError, match=r"20 attempts.*version 20 is present") as refused:
        changed(server)
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
    assert "f" not in server.table.denied_serials


def test_refused_change_is_not_repeated() -> None:
    server = AccessAdmin("1")
    server.code = ResponseCode.NO_PERMISSION
    with pytest.raises(PermissionRefused):
        changed(server)

    def refuse(_: AccessTable) -> AccessTable:
        raise UsageError("no")

    with pytest.raises(UsageError):
        run_in_virtual_time(change_access(server, refuse))  # type: ignore[arg-type]
    assert server.sent == 1


def test_change_whose_answer_was_lost_is_not_made_twice() -> None:
    class Losing(AccessAdmin):
        async def put_access_table(self, table: bytes, expected_version: int) -> None:
            await super().put_access_table(table, expected_version)
            raise refusal(ResponseCode.ILLEGAL_OPERATION, "from the next NameServer")

    server = Losing()
    assert changed(server) == server.table
    assert (server.sent, server.table.version) == (1, 1)


def test_table_that_cannot_be_read_is_an_error_of_the_nameserver() -> None:
    class Broken(AccessAdmin):
        async def access_table(self) -> tuple[int, bytes]:
            return 1, b"{}"

    admin: Any = Broken()
    with pytest.raises(RefusedError, match="no checksum"):
        asyncio.run(read_access(admin))
