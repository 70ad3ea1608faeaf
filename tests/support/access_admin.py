"""Administration of users in memory: what verbs use in place of an `AdminClient`."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_security.access.access_table import AccessTable, access_table_from_json


class AccessAdmin:
    """Administration of one NameServer, whose table others change before these changes come.

    Args:
        others: Serial numbers that others deny, one before each change.
    """

    def __init__(self, *others: str) -> None:
        self.table = AccessTable()
        self.others = list(others)
        self.code = ResponseCode.ILLEGAL_OPERATION
        self.sent = 0

    async def access_table(self) -> tuple[int, bytes]:
        """Return the table."""
        return self.table.version, self.table.to_json()

    async def put_access_table(self, table: bytes, expected_version: int) -> None:
        """Replace the table, as a NameServer does."""
        self.sent += 1
        if self.others:
            self.table = self.table.with_denied_certificate(serial=self.others.pop(0))
        if expected_version != self.table.version:
            raise refusal(self.code, f"version {self.table.version} is present")
        given = access_table_from_json(table)
        given.check_replacement_of(self.table)
        self.table = given

    async def __aenter__(self) -> "AccessAdmin":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@contextmanager
def administered() -> Generator[AccessAdmin]:
    """Let the verbs of this process administer a table in memory while the block runs."""
    admin = AccessAdmin()

    def client(**_: Any) -> AccessAdmin:
        return admin

    with patch("ternmq_console.cli.admin_query.AdminClient", client):
        yield admin
