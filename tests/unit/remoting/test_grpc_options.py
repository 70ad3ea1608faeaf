import pytest

from ternmq_remoting.grpc_options import CLIENT_OPTIONS, server_options
from ternmq_remoting.network_config import NetworkConfig

SERVER_OPTIONS = server_options(NetworkConfig())

MESSAGE_CAP = 4 * 1024 * 1024 + 256 * 1024


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grpc.max_receive_message_length", MESSAGE_CAP),
        ("grpc.max_send_message_length", MESSAGE_CAP),
        ("grpc.max_metadata_size", 16_384),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ],
)
def test_client_and_server_have_the_same_limits(name: str, value: int) -> None:
    assert dict(CLIENT_OPTIONS)[name] == value
    assert dict(SERVER_OPTIONS)[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ],
)
def test_client_reconnects_soon_and_by_itself(name: str, value: int) -> None:
    assert dict(CLIENT_OPTIONS)[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", 4096 + 64),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ],
)
def test_server_options_suit_our_clients(name: str, value: int) -> None:
    assert dict(SERVER_OPTIONS)[name] == value


@pytest.mark.parametrize("options", [CLIENT_OPTIONS, SERVER_OPTIONS], ids=["client", "server"])
def test_options_are_set_once(options: tuple[tuple[str, int], ...]) -> None:
    assert len(dict(options)) == len(options)
