from typing import Any

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import ConfigError
from ternmq_nameserver.config import NameServerConfig


def test_nameserver_listens_on_loopback_by_default() -> None:
    assert NameServerConfig().listen_address == Address("127.0.0.1", 9876)
    for listen in ("::1", "[::1]"):
        assert NameServerConfig(listen=listen, port=0).listen_address == Address("::1", 0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("port", 65_536),
        ("plain_port", 0),
        ("plain_port", 65_536),
        ("port", -1),
        ("listen", "x:y"),
        ("listen", ""),
        ("listen", "*"),
        ("listen", "a b"),
        ("listen", "[::1"),
        ("listen", "[host]"),
        ("expiry_ms", 119_999),
        ("expiry_ms", 600_001),
        ("registered_bytes_max", 0),
        ("scan_interval_s", 0.0),
    ],
)
def test_impossible_setting_is_named(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=setting) as caught:
        NameServerConfig(**{setting: value})
    assert caught.value.setting == f"nameserver.{setting}"
    assert caught.value.value == value
