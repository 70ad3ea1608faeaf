import json

import pytest

from ternmq_model.errors import IllegalName, InvalidParameter, RefusedError
from ternmq_model.json_checksum import CHECKSUM_MEMBER
from ternmq_model.route import ORDER_NAMESPACE
from ternmq_nameserver import kv_table as kv
from ternmq_nameserver.kv_table import KvTable, kv_table_from_json


def test_settings_are_kept_by_namespace_and_key() -> None:
    table = KvTable().with_setting("n", "b", "1").with_setting("n", "a", "2")
    table = table.with_setting("m", "a", "3").with_setting("n", "b", "4")
    assert table.values("n") == {"a": "2", "b": "4"}
    assert list(table.values("n")) == ["a", "b"]
    assert table.get("m", "a") == "3"
    assert table.get("m", "b") is None
    assert table.values("x") == {}
    assert len(table) == 3


def test_change_leaves_the_previous_table_as_it_was() -> None:
    before = KvTable().with_setting("n", "a", "1")
    assert before.with_setting("n", "a", "2").get("n", "a") == "2"
    assert before.without_setting("n", "a").values("n") == {}
    assert before.without_setting("n", "b") is before
    assert before.get("n", "a") == "1"


def test_file_has_rocketmqs_shape_and_reads_back() -> None:
    table = KvTable().with_setting("ORDER_TOPIC_CONFIG", "t", "a:8;b:8").with_setting("n", "ä", "")
    data = table.to_json()
    content = json.loads(data)
    assert content.pop(CHECKSUM_MEMBER)
    assert content == {"configTable": {"ORDER_TOPIC_CONFIG": {"t": "a:8;b:8"}, "n": {"ä": ""}}}
    assert kv_table_from_json(data).to_json() == data
    assert len(kv_table_from_json(b"{}")) == 0


def test_flipped_digit_of_a_setting_is_an_error_where_there_is_a_checksum() -> None:
    data = KvTable().with_setting("ORDER_TOPIC_CONFIG", "t", "a:8").to_json()
    flipped = data.replace(b"a:8", b"a:9")
    with pytest.raises(ValueError, match="checksum"):
        kv_table_from_json(flipped)
    rewritten = json.dumps(json.loads(flipped)).encode()  # as RocketMQ does
    assert kv_table_from_json(rewritten).get("ORDER_TOPIC_CONFIG", "t") == "a:9"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"configTable": []}',
        b'{"configTable": {"n": 1}}',
        b'{"configTable": {"n": {"k": 1}}}',
        b'{"configTable": {"n": {"k": "\\ud800"}}}',
        b'{"configTable": {"n": {"\\udfff": "v"}}}',
        b'{"configTable": {"\\ud800": {"k": "v"}}}',
        b'{"configTable": {"n": {"k": "' + b"v" * (1 << 20) + b'"}}}',
    ],
)
def test_malformed_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        kv_table_from_json(data)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "\x00"])
def test_illegal_names_are_refused(name: str) -> None:
    for namespace, key, kind in ((name, "k", "namespace"), ("n", name, "key")):
        with pytest.raises(IllegalName, match=kind):
            KvTable().with_setting(namespace, key, "v")
        with pytest.raises(IllegalName, match=kind):
            KvTable().without_setting(namespace, key)


def test_malformed_order_configuration_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="ORDER_TOPIC_CONFIG/t must name queues as"):
        KvTable().with_setting(ORDER_NAMESPACE, "t", "a=8")
    with pytest.raises(IllegalName, match="topic"):
        KvTable().with_setting(ORDER_NAMESPACE, "no topic", "a:8")


def test_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameter, match="n/k is 16385 characters long"):
        KvTable().with_setting("n", "k", "v" * 16_385)
    monkeypatch.setattr(kv, "SETTINGS_MAX", 1)
    table = KvTable().with_setting("n", "k", "v")
    table.with_setting("n", "k", "w")
    with pytest.raises(RefusedError, match="no more fit"):
        table.with_setting("n", "l", "v")


def test_namespace_holds_one_mebibyte_and_a_refusal_says_so() -> None:
    table, value = KvTable(), "ä" * 16_000  # two bytes each
    for number in range(32):
        table = table.with_setting("n", str(number), value)
    with pytest.raises(InvalidParameter, match=r"namespace n: .* at most 1048576 fit") as caught:
        table.with_setting("n", "more", value)
    assert value not in str(caught.value)
    assert len(table.with_setting("m", "more", value)) == 33, "each namespace has its own room"
    assert len(table.without_setting("n", "0").with_setting("n", "more", value)) == 32
    assert table.too_large() == {}
