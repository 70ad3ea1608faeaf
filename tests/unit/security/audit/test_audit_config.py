"""Bounds of the settings of the audit trail."""

from pathlib import Path

import pytest

from ternmq_model.errors import ConfigError
from ternmq_security.audit.audit_config import AuditConfig


def test_bounds_are_checked() -> None:
    AuditConfig(file=Path("a"), max_bytes=64 << 10, files=2)
    with pytest.raises(ConfigError, match=r"audit\.max_bytes.*must be 65536 to 1099511627776"):
        AuditConfig(max_bytes=(64 << 10) - 1)
    for files in (1, 1001):
        with pytest.raises(ConfigError, match=r"audit\.files.*must be 2 to 1000"):
            AuditConfig(files=files)
