"""Names and positions in a store's directory."""

import pytest

from ternmq_model.errors import ConfigError
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import base_of, file_base, file_name, fits, step_end
from ternmq_store.log.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint


def test_file_is_named_by_its_first_byte_in_20_digits() -> None:
    assert file_name(1 << 30) == "00000000001073741824"
    assert file_base("00000000001073741824") == 1 << 30
    for name in ("1073741824", "0000000000107374182x", "٠" * 20, ".0000000000000000000"):
        assert file_base(name) is None
    assert base_of(2500, 1000) == 2000


def test_record_goes_into_a_file_only_with_space_for_a_blank_one() -> None:
    assert fits(100, 108)
    assert not fits(100, 107)


def test_space_is_allocated_in_steps_and_never_beyond_the_file() -> None:
    assert step_end(1, 6_000_000) == 65_536
    assert step_end(65_536, 6_000_000) == 65_536
    assert step_end(65_537, 6_000_000) == 131_072
    assert step_end(5_999_999, 6_000_000) == 6_000_000


def test_checkpoint_is_4096_bytes_and_reads_back() -> None:
    checkpoint = Checkpoint(10_000, 9_000, 3, 4, 5)
    data = encode_checkpoint(checkpoint)
    assert len(data) == 4096
    assert decode_checkpoint(data) == checkpoint
    assert checkpoint.safe_at_ms == 6_000
    for senseless in (b"", data[:39], b"\xff" * 4096):
        assert decode_checkpoint(senseless) == Checkpoint()


def test_impossible_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"store\.commit_log_file_bytes=1000"):
        StoreConfig(commit_log_file_bytes=1000)
    with pytest.raises(ConfigError, match=r"store\.flush_interval_ms=0"):
        StoreConfig(flush_interval_ms=0)
    with pytest.raises(ConfigError, match=r"store\.flush_least_pages=-1"):
        StoreConfig(flush_least_pages=-1)
