"""Certificates of `ternmq cert` between gRPC's own server and clients."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import grpc
import pytest

from tests.support.certificates import Certificate, authority
from tests.support.console import text_of

NOW: Final = datetime.now(UTC)
TIMEOUT_S: Final = 10


class SubjectService(grpc.GenericRpcHandler):
    """Returns the subject of its caller's certificate."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of every method."""

        def reply(_request: bytes, context: Any) -> bytes:
            [subject] = context.auth_context()["x509_subject"]
            assert isinstance(subject, bytes)
            return subject

        return cast("Any", grpc).unary_unary_rpc_method_handler(reply)


@contextmanager
def serving(ca: Path, cert: Path, key: Path) -> Generator[str]:
    """Serve with a certificate to clients whose certificates the CA has signed."""
    secret = grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())], ca.read_bytes(), require_client_auth=True
    )
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=[SubjectService()])
        port = server.add_secure_port("127.0.0.1:0", secret)
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def subject_at(address: str, ca: Path, cert: Path, key: Path, *, name: str = "") -> str:
    """Call a service; return the subject in the caller's certificate as the service has it.

    Args:
        address: Address of the service.
        ca: Certificate of the CA that the caller trusts.
        cert: Certificate of the caller.
        key: Its key.
        name: Expected name of the service; empty = the host in the address.
    """
    secret = grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), cert.read_bytes())
    options = [("grpc.ssl_target_name_override", name)] if name else []
    with grpc.secure_channel(address, secret, options) as channel:
        call = cast("Any", channel).unary_unary("/test/Subject")
        return str(call(b"", timeout=TIMEOUT_S).decode())


def is_accepted(address: str, ca: Path, own: Certificate, *, name: str = "broker_a") -> bool:
    try:
        return subject_at(address, ca, own.cert, own.key, name=name) == own.subject
    except grpc.RpcError as error:
        status: Any = error
        assert status.code() is grpc.StatusCode.UNAVAILABLE, status.details()
        return False


def test_service_is_accepted_by_its_names_alone(tmp_path: Path) -> None:
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "broker_a.pem", "broker_a-key.pem"))
    shop, shop_key = tmp_path / "shop.pem", tmp_path / "shop-key.pem"
    text_of("cert", "ca", "--out", str(tmp_path))
    text_of("cert", "issue", "broker_a", "--out", str(tmp_path), "--server", "--host", "mq.example")
    text_of("cert", "issue", "shop", "--out", str(tmp_path), "--client")
    with serving(ca, cert, key) as address:
        for name in ("", "broker_a", "BROKER_A", "mq.example", "localhost"):
            assert subject_at(address, ca, shop, shop_key, name=name) == "CN=shop"
        for name in ("broker_b", "broker", "other.example", "10.0.0.1"):
            with pytest.raises(grpc.RpcError, match=r"(?i)hostname|peer name|verif"):
                subject_at(address, ca, shop, shop_key, name=name)


def test_certificates_of_others_and_those_of_another_time_are_refused(tmp_path: Path) -> None:
    ours, foreign = authority(tmp_path / "ours"), authority(tmp_path / "foreign")
    broker, shop = ours.issue("broker_a"), ours.issue("shop")
    later, earlier = NOW + timedelta(hours=1), NOW - timedelta(hours=1)
    with serving(ours.ca, broker.cert, broker.key) as address:
        assert is_accepted(address, ours.ca, shop)
        assert not is_accepted(address, foreign.ca, shop)
        assert not is_accepted(address, ours.ca, foreign.issue("shop"))
        assert not is_accepted(address, ours.ca, ours.issue("old", not_after=earlier))
        assert not is_accepted(address, ours.ca, ours.issue("new", not_before=later))
        assert not is_accepted(address, ours.ca, ours.issue("service", is_client=False))
    for spoiled in (
        ours.issue("broker_a", not_after=earlier),
        ours.issue("broker_a", is_server=False),
    ):
        with serving(ours.ca, spoiled.cert, spoiled.key) as address:
            assert not is_accepted(address, ours.ca, shop)
