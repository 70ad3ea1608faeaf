"""Identities by one table: tokens, certificates, and what becomes of both when it changes."""

import asyncio

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import PermissionRefused, RefusedError
from ternmq_model.permission import to_publish
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import AUTHORIZATION_KEY, Call, PeerCertificate
from ternmq_security import identifier as identifier_module
from ternmq_security.access.access_table import AccessTable, Doubt, first_administrator
from ternmq_security.access.user import User
from ternmq_security.identifier import Identifier
from ternmq_security.tokens import matches
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock
from tests.support.users import authorization_of, grant, token_of

SUBJECT = "CN=bank, O=Example"
BANK = PeerCertificate(SUBJECT, "bank", 0xAB12)
SHOP = authorization_of("shop")


def table() -> AccessTable:
    """Return users with a token each, one of which has the certificate too."""
    root = first_administrator(AccessTable(), User("root", (token_of("root")[1],)), "test")
    shop, bank = User("shop", (token_of("shop")[1],)), User("bank", (), (SUBJECT,))
    return root.with_user(shop).with_user(bank).with_grant(grant("shop", "publish topic:orders"))


class Known:
    """An identifier over a table that a test changes."""

    def __init__(self, present: AccessTable | None = None) -> None:
        self.present = table() if present is None else present
        self.clock = VirtualClock()
        self.identifier = Identifier(lambda: self.present, InlineBlocking(), self.clock)

    async def name(self, authorization: str = "", shown: PeerCertificate | None = None) -> str:
        """Return the name of a caller; empty = it is unknown."""
        return (await self.identifier.identify(call_of(authorization, shown))).user or ""


def call_of(authorization: str, shown: PeerCertificate | None = None) -> Call:
    metadata = {AUTHORIZATION_KEY: authorization} if authorization else {}
    return Call(Address("client", 1), metadata, shown)


def test_token_or_certificate_names_its_user() -> None:
    async def main() -> None:
        known = Known()
        assert await known.name(SHOP) == "shop"
        assert await known.name("", BANK) == "bank"
        assert await known.name(SHOP, BANK) == "shop", "the token counts before the certificate"
        assert await known.name() == ""
        assert await known.name("", PeerCertificate("CN=other", "other", 1)) == ""

    asyncio.run(main())


@pytest.mark.parametrize(
    "authorization",
    [
        authorization_of("shop", 1),
        authorization_of("nobody"),
        SHOP[:-1],
        SHOP.replace("shop", "bank"),
        "Bearer tmq",
        "Basic c2hvcDpzaG9w",
    ],
)
def test_wrong_token_is_refused_without_its_text_and_the_slow_check(
    authorization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def counted(text: str, token: object) -> bool:
        checked.append(text)
        return matches(text, token)  # type: ignore[arg-type]

    monkeypatch.setattr(identifier_module, "matches", counted)

    async def main() -> None:
        with pytest.raises(PermissionRefused, match="wrong, revoked or expired") as raised:
            await Known().name(authorization)
        assert authorization.removeprefix("Bearer ") not in str(raised.value)
        assert not checked
        assert await Known().name(SHOP) == "shop"
        assert len(checked) == 1

    asyncio.run(main())


def test_two_tokens_are_valid_until_one_is_revoked_or_expires() -> None:
    async def main() -> None:
        known = Known()
        expiry_ms = known.clock.wall_ms() + 1000
        second = token_of("shop", 2, expiry_ms)[1]
        known.present = known.present.with_token("shop", second, known.clock.wall_ms())
        both = SHOP, authorization_of("shop", 2, expiry_ms)
        callers = [await known.identifier.identify(call_of(each)) for each in both]
        assert [each.expires_at_ms for each in callers] == [None, expiry_ms]
        known.present = known.present.without_token("shop", token_of("shop")[1].token_id)
        assert [known.identifier.renewed(each) is None for each in callers] == [True, False]
        with pytest.raises(PermissionRefused):
            await known.name(SHOP)
        known.clock.wall_offset_ms = 1001
        assert known.identifier.renewed(callers[1]) is None
        with pytest.raises(PermissionRefused):
            await known.name(both[1])

    asyncio.run(main())


@pytest.mark.parametrize("denied", [{"subject": SUBJECT}, {"serial": "AB:12"}])
def test_denied_certificate_proves_nothing(denied: dict[str, str]) -> None:
    async def main() -> None:
        known = Known()
        caller = await known.identifier.identify(call_of("", BANK))
        renewed = known.identifier.renewed(caller)
        assert renewed is not None
        assert renewed.user == "bank"
        known.present = known.present.with_denied_certificate(**denied)
        assert known.identifier.renewed(caller) is None
        for authorization in ("", SHOP):
            with pytest.raises(PermissionRefused, match="credentials of the caller are denied"):
                await known.name(authorization, BANK)
        known.present = known.present.without_denied_certificate(**denied)
        assert await known.name("", BANK) == "bank"

    asyncio.run(main())


def test_permissions_are_those_of_the_present_table() -> None:
    async def main() -> None:
        known = Known()
        caller = await known.identifier.identify(call_of(SHOP))
        assert caller.allows(to_publish("orders"))
        known.present = known.present.with_grant(grant("shop", "deny publish *"))
        assert caller.allows(to_publish("orders")), "the guard renews it"
        renewed = known.identifier.renewed(caller)
        assert renewed is not None
        assert not renewed.allows(to_publish("orders"))
        nobody = await known.identifier.identify(call_of(""))
        assert not nobody.allows(None)
        known.present = known.present.with_grant(grant("anonymous", "publish topic:orders"))
        nobody = await known.identifier.identify(call_of(""))
        assert nobody.allows(to_publish("orders"))
        assert nobody.allows(None)

    asyncio.run(main())


def test_caller_is_refused_before_the_table_is_known() -> None:
    async def main() -> None:
        known = Known()
        caller = await known.identifier.identify(call_of(SHOP))
        for doubt, why, code in (
            (Doubt.UNASKED, "not known here yet", ResponseCode.SERVICE_NOT_AVAILABLE),
            (Doubt.REFUSED, "may not read them", ResponseCode.SYSTEM_ERROR),
        ):
            known.present = AccessTable(doubt=doubt)
            assert not known.identifier.is_open
            assert known.identifier.renewed(caller) is None
            for authorization in ("", SHOP):
                with pytest.raises(RefusedError, match=why) as raised:
                    await known.name(authorization)
                assert raised.value.code == code
        known.present = AccessTable()
        assert known.identifier.is_open

    asyncio.run(main())
