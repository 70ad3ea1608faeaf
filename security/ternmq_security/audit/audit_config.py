"""Settings of the audit trail. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_model.arguments import check_range

BYTES_LEAST: Final = 64 << 10
BYTES_MAX: Final = 1 << 40
FILES_MAX: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditConfig:
    """Settings of the audit trail of a process.

    Raises:
        ConfigError: A setting cannot work; names it.
    """

    file: Path | None = None
    """File of the audit trail: one JSON object a line for each administrative change, refused
    attempt and new session. None = no trail is written."""

    max_bytes: int = 16 << 20
    """Size above which the file is renamed to `<file>.1` and a new one begins; 64 KiB to 1 TiB."""

    files: int = 8
    """Files that are kept, the present one included; 2 to 1000."""

    def __post_init__(self) -> None:
        for name, least, most in (("max_bytes", BYTES_LEAST, BYTES_MAX), ("files", 2, FILES_MAX)):
            check_range(f"audit.{name}", getattr(self, name), least, most)
