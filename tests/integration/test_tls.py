"""Connections with TLS: who is let in, and who is not."""

import asyncio
import os
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import CannotListen, ConfigError, Unreachable
from ternmq_protos.v1 import messages_pb2 as pb
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.rpc import ANY_MEMBER, AUTHORIZATION_KEY, Call, Connection, Identity, unary
from ternmq_remoting.service_methods import SEND
from ternmq_remoting.tls import ClientAuth, Credentials, TlsConfig
from tests.support.certificates import Authority, Certificate, authority
from tests.support.echo_service import ANY_PORT, ME, EchoService, batch, open_stream, run, send
from tests.support.processes import free_port

MEMBER = Identity(ME.cluster, ME.name, ANY_MEMBER, 0)
CONNECTS_WITHIN_S = 20


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    return authority(tmp_path / "trusted")


def tls_of(trusted: Authority, own: Certificate, *, asks: bool = False) -> TlsConfig:
    client_auth = ClientAuth.REQUIRED if asks else ClientAuth.NONE
    return TlsConfig(cert=own.cert, key=own.key, ca=trusted.ca, client_auth=client_auth)


async def connected(
    address: Address, credentials: Credentials, expect: Identity | None = MEMBER
) -> Connection:
    network = GrpcNetwork(credentials=credentials)
    return await network.connect([address], expect=expect, timeout_s=CONNECTS_WITHIN_S)


async def reason_of_refusal(
    address: Address, credentials: Credentials, expect: Identity | None = MEMBER
) -> str:
    with pytest.raises(Unreachable) as refused:
        await connected(address, credentials, expect)
    return str(refused.value)


def test_caller_without_a_certificate_is_served_and_unknown(trusted: Authority) -> None:
    async def test() -> None:
        service = EchoService()
        network = GrpcNetwork(tls=tls_of(trusted, trusted.issue(ME.name)))
        async with network.serve(service.handlers(), ANY_PORT, identity=ME) as server:
            link = await connected(server.address, Credentials(ca=trusted.ca))
            await send(link, "1")
            await link.close()
        assert [call.certificate for call in service.calls] == [None]

    run(test)


def test_handler_knows_the_certificate_of_its_caller(trusted: Authority) -> None:
    async def test() -> None:
        service, mine = EchoService(), trusted.issue("shop")
        network = GrpcNetwork(tls=tls_of(trusted, trusted.issue(ME.name), asks=True))
        async with network.serve(service.handlers(), ANY_PORT, identity=ME) as server:
            credentials = Credentials(ca=trusted.ca, cert=mine.cert, key=mine.key)
            link = await connected(server.address, credentials)
            await send(link, "1")
            await link.close()
        (found,) = [call.certificate for call in service.calls]
        assert found is not None
        assert (found.common_name, found.serial, found.subject) == (
            "shop",
            mine.serial,
            mine.subject,
        )

    run(test)


def test_server_without_the_expected_name_is_not_spoken_to(trusted: Authority) -> None:
    async def test() -> None:
        # An address from a NameServer may belong to another host, which has another certificate.
        other = trusted.issue("other-broker")
        network = GrpcNetwork(tls=tls_of(trusted, other))
        async with network.serve([], ANY_PORT, identity=ME) as server:
            credentials = Credentials(ca=trusted.ca)
            assert "not valid for" in await reason_of_refusal(server.address, credentials)
            link = await connected(server.address, credentials, expect=None)  # by its IP address
            await link.close()
        elsewhere = trusted.issue("elsewhere", hosts=("192.0.2.1", "example.org"))
        network = GrpcNetwork(tls=tls_of(trusted, elsewhere))
        async with network.serve([], ANY_PORT) as server:
            assert "not valid for" in await reason_of_refusal(server.address, credentials, None)

    run(test)


@pytest.mark.parametrize("fault", ["foreign", "expired", "not yet valid", "plain"])
def test_wrong_server_is_not_spoken_to(tmp_path: Path, trusted: Authority, fault: str) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    issuer = authority(tmp_path / "foreign") if fault == "foreign" else trusted
    own = issuer.issue(
        ME.name,
        not_before=now + day / 2 if fault == "not yet valid" else None,
        not_after=now - timedelta(hours=1) if fault == "expired" else None,
    )

    async def test() -> None:
        tls = None if fault == "plain" else tls_of(issuer, own)
        async with GrpcNetwork(tls=tls).serve([], ANY_PORT, identity=ME) as server:
            reason = await reason_of_refusal(server.address, Credentials(ca=trusted.ca))
            assert "andshake" in reason or "SSL" in reason

    run(test)


@pytest.mark.parametrize("fault", ["foreign", "expired", "none", "plain"])
def test_wrong_client_is_not_let_in(tmp_path: Path, trusted: Authority, fault: str) -> None:
    now = datetime.now(UTC)
    issuer = authority(tmp_path / "foreign") if fault == "foreign" else trusted
    mine = issuer.issue("shop", not_after=now - timedelta(hours=1) if fault == "expired" else None)
    credentials = Credentials(ca=trusted.ca, cert=mine.cert, key=mine.key)
    if fault == "none":
        credentials = Credentials(ca=trusted.ca)
    elif fault == "plain":
        credentials = Credentials()

    async def test() -> None:
        service = EchoService()
        network = GrpcNetwork(tls=tls_of(trusted, trusted.issue(ME.name), asks=True))
        async with network.serve(service.handlers(), ANY_PORT, identity=ME) as server:
            await reason_of_refusal(server.address, credentials)
            assert service.calls == []
            good = trusted.issue("good")
            kind = Credentials(ca=trusted.ca, cert=good.cert, key=good.key)
            await (await connected(server.address, kind)).close()

    run(test)


@pytest.mark.parametrize(
    ("version", "is_spoken"),
    [
        (ssl.TLSVersion.TLSv1, False),
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_begins_with_1_2(trusted: Authority, version: ssl.TLSVersion, is_spoken: bool) -> None:
    context = ssl.create_default_context(cafile=str(trusted.ca))
    context.set_ciphers("ALL:@SECLEVEL=0")  # else OpenSSL itself would not offer the old ones
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])

    async def test() -> None:
        network = GrpcNetwork(tls=tls_of(trusted, trusted.issue(ME.name)))
        async with network.serve([], ANY_PORT) as server:
            where = (server.address.host, server.address.port)
            if not is_spoken:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await asyncio.open_connection(*where, ssl=context)
                return
            _, writer = await asyncio.open_connection(*where, ssl=context)
            found = writer.get_extra_info("ssl_object").version()
            assert found == version.name.replace("_", ".")
            writer.close()

    run(test)


async def serial_shown(address: Address, trusted: Authority) -> int:
    """Return the serial number of the certificate that a new handshake gets."""
    context = ssl.create_default_context(cafile=str(trusted.ca))
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    shown = writer.get_extra_info("peercert")
    writer.close()
    return int(shown["serialNumber"], 16)


def test_exchanged_certificate_is_shown_and_no_stream_ends(
    trusted: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        caplog.set_level("INFO", "ternmq_remoting")
        first = trusted.issue(ME.name)
        network = GrpcNetwork(tls=tls_of(trusted, first))
        async with network.serve(EchoService().handlers(), ANY_PORT, identity=ME) as server:
            link = await connected(server.address, Credentials(ca=trusted.ca))
            stream = await open_stream(link)
            await stream.write(batch(b"12"))
            assert await stream.read() is not None
            assert await serial_shown(server.address, trusted) == first.serial

            second = trusted.issue(ME.name)
            assert await serial_shown(server.address, trusted) == second.serial
            key = second.key.read_bytes()
            second.key.write_text("half of a key")
            assert await serial_shown(server.address, trusted) == second.serial
            assert await serial_shown(server.address, trusted) == second.serial
            assert caplog.text.count("certificate not taken") == 1
            second.cert.unlink()
            for _ in range(3):
                assert await serial_shown(server.address, trusted) == second.serial
            assert caplog.text.count("certificate not taken") == 2
            third = trusted.issue(ME.name)
            assert third.key.read_bytes() != key
            assert await serial_shown(server.address, trusted) == third.serial

            await stream.write(batch(b"123"))
            assert await stream.read() is not None
            await send(link, "1")
            await link.close()

    run(test)


def test_client_reads_renewed_certificates_for_new_connections(trusted: Authority) -> None:
    async def test() -> None:
        service, mine = EchoService(), trusted.issue("shop")
        network = GrpcNetwork(tls=tls_of(trusted, trusted.issue(ME.name), asks=True))
        client = GrpcNetwork(credentials=Credentials(ca=trusted.ca, cert=mine.cert, key=mine.key))
        serials: list[int] = []
        async with network.serve(service.handlers(), ANY_PORT, identity=ME) as server:
            for _ in range(2):
                link = await client.connect(
                    [server.address], expect=ME, timeout_s=CONNECTS_WITHIN_S
                )
                await send(link, "1")
                await link.close()
                serials.append(mine.serial)
                mine = trusted.issue("shop")
            mine.key.unlink()
            with pytest.raises(Unreachable, match="the credentials"):
                await client.connect([server.address], expect=ME)
        shown = [call.certificate for call in service.calls]
        assert [each.serial for each in shown if each is not None] == serials

    run(test)


def test_plain_port_beside_one_with_tls(trusted: Authority) -> None:
    async def test() -> None:
        network = GrpcNetwork(tls=tls_of(trusted, trusted.issue(ME.name)))
        plain = free_port()
        listener = network.listener(ANY_PORT, plain_port=plain)
        async with listener.serve(EchoService().handlers(), identity=ME) as server:
            # A client with both addresses connects where it can.
            both = [Address("127.0.0.1", plain), server.address]
            for credentials, port in (
                (Credentials(), plain),
                (Credentials(ca=trusted.ca), server.address.port),
            ):
                client = GrpcNetwork(credentials=credentials)
                link = await client.connect(both, expect=ME, timeout_s=CONNECTS_WITHIN_S)
                assert link.address.port == port
                await send(link, "1")
                await link.close()
            taken = network.listener(ANY_PORT, plain_port=plain)
            with pytest.raises(CannotListen, match=str(plain)):
                async with taken.serve([]):
                    pass
        await listener.close()

    run(test)


def test_files_that_cannot_be_used_are_refused_with_their_names(
    tmp_path: Path, trusted: Authority
) -> None:
    own, other = trusted.issue("own"), trusted.issue("other")
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    given: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"cert": own.cert}, "tls.cert", "needs tls.key"),
        ({"key": own.key}, "tls.key", "needs tls.cert"),
        ({"cert": own.cert, "key": other.key}, "tls.cert", str(other.key)),
        ({"cert": missing, "key": own.key}, "tls.cert", "No such file"),
        ({"cert": text, "key": own.key}, "tls.cert", "cannot be used"),
        ({"ca": text}, "tls.ca", "no certificate"),
        ({"ca": missing}, "tls.ca", "No such file"),
    )
    for settings, setting, rule in given:
        with pytest.raises(ConfigError, match=rule) as refused:
            TlsConfig(**settings)
        assert refused.value.setting == setting
    with pytest.raises(ConfigError, match=r"needs tls\.cert"):
        TlsConfig(cert=own.cert, key=own.key, client_auth=ClientAuth.REQUIRED)
    with pytest.raises(ConfigError, match="needs credentials"):
        Credentials(cert=own.cert, key=own.key)


def test_credentials_of_a_file(
    tmp_path: Path, trusted: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = trusted.issue("own")
    for each in (own.cert, own.key, trusted.ca):
        shutil.copy(each, tmp_path)
    file = tmp_path / "credentials.toml"
    file.write_text(f'ca = "ca.pem"\ncert = "{own.cert.name}"\nkey = "{own.key.name}"\n')
    expected = Credentials(
        ca=tmp_path / "ca.pem", cert=tmp_path / own.cert.name, key=tmp_path / own.key.name
    )
    assert Credentials.from_file(file) == expected
    monkeypatch.setenv("TERNMQ_CREDENTIALS_FILE", str(file))
    assert Credentials.from_environment() == expected
    monkeypatch.delenv("TERNMQ_CREDENTIALS_FILE")
    assert Credentials.from_environment() == Credentials()
    for content, rule in (
        ("cart = 'a'", "unknown key 'cart'"),
        ("ca = 1", "ca must be a text"),
        ("secret words", "is no TOML file"),
    ):
        file.write_text(content)
        with pytest.raises(ConfigError, match=rule) as refused:
            Credentials.from_file(file)
        assert "words" not in str(refused.value)
    os.unlink(file)
    with pytest.raises(ConfigError, match="No such file"):
        Credentials.from_file(file)


SECRET: Final = "s" * 43
TOKEN: Final = f"tmq.shop.{SECRET}"


def test_token_of_a_file_is_hidden_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "credentials.toml"
    file.touch(0o600)
    file.write_text(f'token = "{TOKEN}"\n')
    found = Credentials.from_file(file)
    assert found.token == TOKEN
    assert found.has_identity
    assert SECRET not in repr(found)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="its mode must be 0600") as refused:
        Credentials.from_file(file)
    assert SECRET not in str(refused.value)
    for wrong in (SECRET, f"tmq.shop.{SECRET} ", f"tmq..{SECRET}", f"tmq.shop\n.{SECRET}"):
        with pytest.raises(ConfigError, match=r"must be tmq\.USER\.SECRET") as refused:
            Credentials(token=wrong)
        assert SECRET not in str(refused.value)


def test_token_leaves_its_machine_over_tls_alone(trusted: Authority) -> None:
    own = trusted.issue("broker-a")
    seen: list[str] = []

    async def serve(request: pb.SendRequest, call: Call) -> pb.SendReply:
        seen.append(call.metadata[AUTHORIZATION_KEY])
        return pb.SendReply()

    async def call(server: GrpcNetwork, client: GrpcNetwork) -> None:
        async with server.serve([unary(SEND, serve)], Address("127.0.0.1", 0)) as listening:
            connection = await client.connect([listening.address])
            await connection.call(SEND, pb.SendRequest(), timeout_s=5)
            await connection.close()

    async def main() -> None:
        plain = GrpcNetwork(credentials=Credentials(token=TOKEN))
        await call(GrpcNetwork(), plain)
        secure = GrpcNetwork(credentials=Credentials(token=TOKEN, ca=trusted.ca))
        await call(GrpcNetwork(tls=TlsConfig(cert=own.cert, key=own.key)), secure)
        assert seen == [f"Bearer {TOKEN}"] * 2
        away = Address("192.0.2.1", 9876)
        with pytest.raises(ConfigError, match="over TLS only") as refused:
            await plain.connect([Address("127.0.0.1", 1), away])
        assert SECRET not in str(refused.value)
        with pytest.raises(Unreachable):
            await secure.connect([away], timeout_s=0.1)

    asyncio.run(main())
