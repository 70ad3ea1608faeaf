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
    with pytest.raises(UsageError, match="no setting 'flash_mode' of a broker or a store"):
        split_settings({"flash_mode": "sync"})


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
