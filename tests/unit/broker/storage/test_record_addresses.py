import pytest

from ternmq_broker.storage.record_addresses import born_host_bytes, own_host
from ternmq_model.address import Address
from ternmq_model.message_id import host_text


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.1.2.3", "10.1.2.3:80"),
        ("::ffff:10.1.2.3", "10.1.2.3:80"),
        ("fe80::1%eth0", "[fe80::1]:80"),
        ("::1", "[::1]:80"),
        ("some-host", "127.0.0.1:80"),
    ],
)
def test_callers_address_becomes_a_born_host(host: str, text: str) -> None:
    assert host_text(born_host_bytes(Address(host, 80))) == text


def test_machine_with_an_unresolvable_name_is_its_own_loopback() -> None:
    assert own_host("no such name") == "127.0.0.1"
    assert own_host("127.0.0.9") == "127.0.0.9"
