import pytest

from ternmq_model.address import (
    Address,
    is_loopback,
    is_unspecified,
    listen_address,
    parse_address,
    resolve_addresses,
)
from ternmq_model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9876", Address("127.0.0.1", 9876)),
        (" broker-1.example.org:0 ", Address("broker-1.example.org", 0)),
        ("[::1]:10911", Address("::1", 10911)),
    ],
)
def test_address_survives_the_round_trip(text: str, address: Address) -> None:
    assert parse_address(text, setting="x") == address
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "::1:5", "host:65536", "host:-1", "a:b:1"]
)
def test_text_that_is_no_address_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(ConfigError, match="nameservers="):
        parse_address(text, setting="client.nameservers")


@pytest.mark.parametrize(
    ("host", "plain"),
    [("localhost", "localhost"), ("0.0.0.0", "0.0.0.0"), ("::1", "::1"), ("[::1]", "::1")],
)
def test_service_listens_on_a_name_or_an_ip_address(host: str, plain: str) -> None:
    assert listen_address(host, 0, setting="x") == Address(plain, 0)


@pytest.mark.parametrize("host", ["", "*", "a b", "a:1", "::x", "[::1", "[name]", "1:2:3"])
def test_illegal_host_is_refused_as_it_was_written(host: str) -> None:
    with pytest.raises(ConfigError, match="must be a host name or an IP address") as caught:
        listen_address(host, 7, setting="broker.listen")
    assert (caught.value.setting, caught.value.value) == ("broker.listen", host)


def test_every_spelling_of_all_interfaces_is_known() -> None:
    assert all(is_unspecified(host) for host in ("0.0.0.0", "::", "0:0::0"))
    assert not any(is_unspecified(host) for host in ("127.0.0.1", "::1", "host", "*"))


def test_star_becomes_the_nameservers_host_and_addresses_are_unique() -> None:
    endpoints = (Address("b", 1), Address("*", 1), Address("*", 2), Address("b", 2))
    assert resolve_addresses(endpoints, nameserver_host="b") == (Address("b", 1), Address("b", 2))


@pytest.mark.parametrize(
    ("host", "port", "legal"),
    [
        ("*", 1, True),
        ("host-1", 65535, True),
        ("::1", 1, True),
        ("fe80::1%eth0", 1, True),
        ("host", 0, False),
        ("host", 65536, False),
        ("", 1, False),
        ("a b", 1, False),
        ("**", 1, False),
        ("a/b", 1, False),
        ("h" * 254, 1, False),
    ],
)
def test_endpoint_names_a_host_and_a_port(host: str, port: int, legal: bool) -> None:
    assert Address(host, port).is_legal_endpoint is legal


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("broker-a", False)),
        ("::ffff:127.0.0.1", True),
    ],
)
def test_loopback_hosts_are_told_from_reachable_ones(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
