import pytest

from ternmq_model.errors import ConfigError
from ternmq_remoting.network_config import NetworkConfig


@pytest.mark.parametrize(
    ("setting", "least", "most", "below", "above"),
    [
        ("handshake_timeout_s", 1.0, 120.0, 0.9, 121.0),
        ("first_message_timeout_s", 1.0, 3600.0, 0.0, 3601.0),
        ("connections_by_address_max", 1, 1_000_000, 0, 1_000_001),
        ("anonymous_bytes_max", 4096, 64 << 20, 4095, (64 << 20) + 1),
        ("streams_max", 16, 1_000_000, 15, 1_000_001),
    ],
)
def test_limit_out_of_bounds_is_refused_by_name(
    setting: str, least: float, most: float, below: float, above: float
) -> None:
    for value in (least, most):
        assert getattr(NetworkConfig(**{setting: value}), setting) == value  # type: ignore[arg-type]
    for value in (below, above):
        with pytest.raises(ConfigError, match=f"network.{setting}.*must be"):
            NetworkConfig(**{setting: value})  # type: ignore[arg-type]
