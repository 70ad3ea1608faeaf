from collections.abc import Mapping
from typing import Any

import pytest

from ternmq_model.errors import UsageError
from ternmq_store.config import FlushMode
from ternmq_testing.cluster.broker_settings import setting_variables, split_settings


def test_settings_go_to_brokers_and_stores_by_their_names() -> None:
    given = {"flush_mode": FlushMode.SYNC, "commit_log_file_bytes": 1 << 20}
    of_broker, of_store = split_settings(given)
    assert (of_broker, of_store) == (
        {"flush_mode": FlushMode.SYNC},
        {"commit_log_file_bytes": 1 << 20},
    )
    assert split_settings({"flush_mode": "sync"})[0] == {"flush_mode": FlushMode.SYNC}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"flash_mode": "sync"}, "no setting 'flash_mode' of a .*; did you mean 'flush_mode'"),
        ({"zzz": 1}, "no setting 'zzz' of a broker or a store$"),
        ({"flush_mode": "SYNC"}, "flush_mode='SYNC' must be 'sync' or 'async'"),
        ({"force_master": "yes"}, "force_master='yes' must be True or False"),
        ({"transaction_checks_max": "3"}, "transaction_checks_max='3' must be a whole number"),
        ({"region": 3}, "region=3 must be a text"),
    ],
)
def test_wrong_settings_are_refused_by_name(given: Mapping[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        split_settings(given)


def test_variables_have_the_values_that_a_broker_reads() -> None:
    variables = setting_variables(
        {
            "flush_mode": FlushMode.SYNC,
            "nameservers": ("a:1", "b:2"),
            "force_master": True,
            "commit_log_file_bytes": 1 << 20,
        }
    )
    assert variables == {
        "TERNMQ_BROKER__FLUSH_MODE": "sync",
        "TERNMQ_BROKER__NAMESERVERS": "a:1,b:2",
        "TERNMQ_BROKER__FORCE_MASTER": "true",
        "TERNMQ_STORE__COMMIT_LOG_FILE_BYTES": "1048576",
    }
