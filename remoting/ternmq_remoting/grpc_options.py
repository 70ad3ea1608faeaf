"""Options of gRPC. Pure.

Names that begin with `grpc.` are those of gRPC's C library (`channel_arg_names.h`).

Left at gRPC's defaults, because nothing was gained in `benchmarks/remoting_roundtrip.py` (2 cores,
round trips of 1 KiB and batches of 1 MiB): `grpc.http2.bdp_probe` (without it batches both ways are
a third slower), `grpc.http2.max_frame_size`, `grpc.http2.lookahead_bytes`,
`grpc.http2.write_buffer_size`, `grpc.experimental.tcp_*_chunk_size`, `grpc.enable_retries`,
`grpc.minimal_stack`.
"""

from typing import Final

from ternmq_remoting.network_config import NetworkConfig

MESSAGE_BYTES_MAX: Final = (4 << 20) + (256 << 10)
"""Most bytes of a message: a 4 MiB body, 32,767 bytes of properties, and their envelope. Never −1:
the limit also holds after decompression and so stops a small request that expands to a huge one."""

METADATA_BYTES_MAX: Final = 16 << 10
KEEPALIVE_TIME_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000
"""Longest time without an answer to a ping, ms. Without it a half-open connection would hold its
streams for hours."""

RECONNECT_BACKOFF_MS: Final = (100, 1000)
"""First and longest wait between two attempts to connect. gRPC's own longest is two minutes."""

STREAMS_ABOVE_MAX: Final = 64
"""Calls above a port's limit that may begin, so that they can be refused with a reason: at gRPC's
own limit a client's calls wait for each other."""

_BOTH: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # Without this option a peer has a minute to answer, in spite of the keepalive's own timeout
    # (measured with grpcio 1.85.1).
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

CLIENT_OPTIONS: Final = (
    *_BOTH,
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MS[0]),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_BACKOFF_MS[1]),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MS[1]),
    # A pool of its own for each connection: a shared socket has a shared back-off, so a probe of a
    # service that has just started would fail without an attempt.
    ("grpc.use_local_subchannel_pool", 1),
    # A web proxy must not see the traffic between brokers, and cannot carry it.
    ("grpc.enable_http_proxy", 0),
)

_SERVER: Final = (
    *_BOTH,
    # With gRPC's default two servers would share a port, each with some of the connections.
    ("grpc.so_reuseport", 0),
    # The permitted interval is half of the clients' keepalive, so that jitter is permitted too.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
)


def server_options(config: NetworkConfig) -> tuple[tuple[str, int], ...]:
    """Return the options of a server with these settings."""
    return (
        *_SERVER,
        ("grpc.max_concurrent_streams", config.streams_max + STREAMS_ABOVE_MAX),
        ("grpc.server_handshake_timeout_ms", round(config.handshake_timeout_s * 1000)),
    )
