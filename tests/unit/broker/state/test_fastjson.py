import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.state.fastjson import parse_json, version_from_dict, version_to_dict, write_json
from ternmq_model.data_version import DataVersion


def test_unquoted_integer_keys_are_read() -> None:
    text = '{"offsetTable":{"T@G":{0:10,\n\t1:12},"%RETRY%G@G":{0:0}}}'
    assert parse_json(text) == {"offsetTable": {"T@G": {"0": 10, "1": 12}, "%RETRY%G@G": {"0": 0}}}


def test_key_like_text_inside_a_string_is_kept() -> None:
    assert parse_json('{"a":"{0:1}, \\"{2:3", 4 : "x"}') == {"a": '{0:1}, "{2:3', "4": "x"}


def test_written_json_is_strict() -> None:
    text = write_json({"b": {"0": 1}, "a": "ä"})
    assert parse_json(text) == {"a": "ä", "b": {"0": 1}}
    assert text.startswith('{\n\t"a"')


@pytest.mark.parametrize("text", ["", "[1]", "null", '{"a":', "{0 1}"])
def test_malformed_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_json(text)


def test_version_survives_the_file() -> None:
    version = DataVersion(1_700_000_000_000, 7, 2)
    assert version_from_dict(version_to_dict(version), now_ms=1) == version


def test_file_of_version_4_without_a_version_gets_a_new_one() -> None:
    assert version_from_dict(None, now_ms=5) == DataVersion(5)
    assert version_from_dict({"counter": 2, "timestamp": 3}, now_ms=5) == DataVersion(3, 2)


@pytest.mark.parametrize("value", [3, [], {"counter": "x"}, {"counter": True}])
def test_senseless_version_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"is .*, not"):
        version_from_dict(value, now_ms=5)


def test_keys_that_are_objects_become_their_json() -> None:
    queue = '{"topic":"T","brokerName":"a","queueId":0}'
    text = '{"offsetTable":{' + queue + ':10,{"topic":"U"}:-1,},3:{1:[2,]}}'
    assert parse_json(text) == {
        "offsetTable": {'{"brokerName":"a","queueId":0,"topic":"T"}': 10, '{"topic":"U"}': -1},
        "3": {"1": [2]},
    }


@pytest.mark.parametrize(
    "text",
    [
        "{{}}",
        '{"a" 1}',
        '{"a":1 "b":2}',
        '{"a":1}}',
        "{[1]:2}",
        "{true:2}",
        '{"a":nan}',
        '{"a":__import__}',
        '{{"a":1}:"' + "x" * 50,
        '{"a":' * 100_000,
        '{"a":' + "[" * 100_000,
        '{"a":' + "{" * 100_000,
    ],
)
def test_hostile_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_json(text)


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
def test_slow_parser_agrees_with_the_quick_one(table: dict[str, object]) -> None:
    loose = write_json({"table": table})[:-2].rstrip() + ",}"
    assert parse_json(loose) == {"table": table}
