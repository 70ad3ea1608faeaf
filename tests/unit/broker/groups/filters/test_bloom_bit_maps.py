import pytest

from ternmq_broker.config import BrokerConfig
from ternmq_broker.groups.filters.bloom_bit_maps import FilterBitMaps, fit_bit_maps
from ternmq_broker.state.filters import BLOOM, FilterTable
from ternmq_broker.storage.internal_record import InternalRecord, batches_of
from ternmq_model.errors import ConfigError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch, check_records
from ternmq_model.subscription import SQL92, parse_subscription
from ternmq_store.config import StoreConfig
from tests.support.records import BORN_HOST, STORE_HOST, record, sizes_of

END = PhysicalOffset(1)


def batch(*records: bytes) -> RecordBatch:
    found = check_records(
        b"".join(records), sizes_of(list(records)), born_host_bytes=8, store_host_bytes=8
    ).batch
    assert found is not None
    return found


def test_bit_map_has_the_bits_of_every_matching_group() -> None:
    table = FilterTable()
    table.register("G", [parse_subscription("T", "a = 1", SQL92)], now_ms=1, log_end=END)
    table.register("H", [parse_subscription("T", "b = 'x'", SQL92)], now_ms=1, log_end=END)
    table.register("I", [parse_subscription("T", "a = 1", SQL92)], now_ms=1, log_end=END)
    table.register("I", [], now_ms=2, log_end=END)
    maps = FilterBitMaps(table)(
        batch(
            record("T", 0, b"", {"a": "1", "b": "x"}),
            record("T", 1, b"", {"a": "1"}),
            record("U", 0, b"", {"a": "1"}),
            record("T", 0, b"", {"a": "none"}),
        )
    )
    one, two = BLOOM.positions("G", "T"), BLOOM.positions("H", "T")
    assert maps == [BLOOM.bit_map([*one, *two]), BLOOM.bit_map(one), b"", bytes(14)]


def test_place_of_the_source_is_hidden_from_conditions_in_bit_maps() -> None:
    table = FilterTable()
    told = [parse_subscription("T", "TERNMQ_SOURCE IS NULL", SQL92)]
    table.register("G", told, now_ms=1, log_end=END)
    inner = InternalRecord(
        topic="T",
        queue_id=0,
        body=b"",
        properties={"TERNMQ_SOURCE": "7"},
        born_at_ms=1,
        born_host=BORN_HOST,
    )
    (delivered,) = batches_of([inner], store_host=STORE_HOST, is_checksummed=False)
    (bit_map,) = FilterBitMaps(table)(delivered)
    assert bit_map == BLOOM.bit_map(BLOOM.positions("G", "T"))


def test_overlong_condition_matches_every_message_in_bit_maps() -> None:
    table = FilterTable()
    long = " OR ".join(["a = 1"] * 100)
    table.register("G", [parse_subscription("T", long, SQL92)], now_ms=1, log_end=END)
    (bit_map,) = FilterBitMaps(table)(batch(record("T", 0, b"", {"a": "2"})))
    assert bit_map == BLOOM.bit_map(BLOOM.positions("G", "T"))


def test_bit_maps_need_extended_consume_queues() -> None:
    config = BrokerConfig(filter_bit_maps_enabled=True)
    with pytest.raises(ConfigError, match=r"needs store\.consume_queue_ext_enabled"):
        fit_bit_maps(config, StoreConfig())
    fitted = fit_bit_maps(config, StoreConfig(consume_queue_ext_enabled=True))
    assert fitted.consume_queue_ext_bit_map_bits == 112
    assert fit_bit_maps(BrokerConfig(), StoreConfig()) == StoreConfig()
