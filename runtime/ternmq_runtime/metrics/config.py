"""Settings of the port for metrics and health. Pure."""

from dataclasses import dataclass

from ternmq_model.arguments import check_range


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsConfig:
    """Settings of the HTTP port of a process for metrics and health.

    Raises:
        ConfigError: A setting cannot work; names it.
    """

    port: int = 0
    """Port of `/metrics`, `/livez` and `/readyz`; 0 = none is opened. Needs the extra `metrics`."""

    listen: str = "127.0.0.1"
    """Host to listen on. The port has neither TLS nor users: its readers see the names of topics
    and groups, and no message."""

    series_max: int = 10_000
    """Most series of one metric whose labels clients choose, such as topics; 10 to 1,000,000. The
    rest is summed under `other`."""

    def __post_init__(self) -> None:
        check_range("metrics.port", self.port, 0, 65_535)
        check_range("metrics.series_max", self.series_max, 10, 1_000_000)
