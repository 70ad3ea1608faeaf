"""Users of simulated services: tables with tokens, which hosts show."""

from dataclasses import dataclass, field
from functools import cache

from ternmq_model.address import parse_address
from ternmq_model.permission import Action
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.rpc import Connection, connected
from ternmq_remoting.service_methods import PUT_ACCESS
from ternmq_remoting.system_environment import system_environment
from ternmq_remoting.tls import Credentials
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.user import TokenHash, User
from ternmq_security.identifier import SCHEME
from ternmq_security.tokens import new_token


@cache
def token_of(user: str, number: int = 0, expires_at_ms: int = 0) -> tuple[str, TokenHash]:
    """Return the text and hash of a token; the same arguments give the same one."""
    secret = f"{number}{user}".encode().ljust(32, b"s")[:32]
    return new_token(user, secret, b"salt" * 4, 1, expires_at_ms)


def authorization_of(user: str, number: int = 0, expires_at_ms: int = 0) -> str:
    """Return the authorization of a user's calls."""
    return SCHEME + token_of(user, number, expires_at_ms)[0]


def grant(user: str, text: str) -> Grant:
    """Return the grant of a text such as `publish topic:orders` or `deny publish *`."""
    effect = Effect.DENY if text.startswith("deny ") else Effect.ALLOW
    action, resource = text.removeprefix("deny ").split()
    return Grant(user, effect, Action(action), ResourcePattern.parse(resource))


@dataclass
class Users:
    """The newest table. `root` is its first administrator."""

    table: AccessTable = field(
        default_factory=lambda: first_administrator(
            AccessTable(), User("root", (token_of("root")[1],)), "test"
        )
    )

    def add(self, name: str, *grants: str, subjects: tuple[str, ...] = ()) -> str:
        """Add a user with a token, and return its authorization."""
        self.table = self.table.with_user(User(name, (token_of(name)[1],), subjects))
        for each in grants:
            self.allow(name, each)
        return authorization_of(name)

    def allow(self, name: str, text: str) -> None:
        """Add a grant. See `grant`."""
        self.table = self.table.with_grant(grant(name, text))

    def remove(self, name: str) -> None:
        """Remove a user."""
        self.table = self.table.without_user(name)

    async def put(self, connection: Connection, expected_version: int = 0) -> None:
        """Make the table that of a NameServer."""
        await put_table(connection, self.table, expected_version)

    def revoke(self, name: str, text: str) -> None:
        """Remove a grant. See `grant`."""
        self.table = self.table.without_grant(grant(name, text))

    async def put_at(
        self, nameserver: str, credentials: Credentials, expected_version: int = 0
    ) -> None:
        """Make the table that of a NameServer, which is a process."""
        address = parse_address(nameserver, setting="nameserver")
        async with (
            system_environment(credentials=credentials) as env,
            connected(env.network, [address]) as connection,
        ):
            await self.put(connection, expected_version)


async def put_table(connection: Connection, table: AccessTable, expected_version: int) -> None:
    """Make a table that of a NameServer whose table has the expected version.

    Raises:
        AssertionError: The NameServer has another version.
    """
    request = pb.PutAccessRequest(expected_version=expected_version, table=table.to_json())
    reply = await connection.call(PUT_ACCESS, request, timeout_s=3)
    assert not reply.status.code, reply.status.remark
    assert reply.version == table.version
