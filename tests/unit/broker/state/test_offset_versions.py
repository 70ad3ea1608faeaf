import pytest

from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.offset_versions import (
    TOKENS_PER_MS,
    VERSION_MAX,
    VERSION_STEP_MAX,
    OffsetVersions,
)


def reloaded(versions: OffsetVersions) -> OffsetVersions:
    return OffsetVersions.from_dict(parse_json(write_json(versions.to_dict())))


def test_versions_survive_a_restart() -> None:
    versions = OffsetVersions()
    versions.put("G", "%RETRY%G", 3, 7)
    assert versions.get("G", "%RETRY%G", 3) == 7
    assert reloaded(versions).get("G", "%RETRY%G", 3) == 7
    assert reloaded(versions).get("G", "T", 3) == 0


@pytest.mark.parametrize("kept", [0, 7, VERSION_MAX - 1, VERSION_MAX])
def test_next_version_of_any_that_is_believed_can_be_read_again(kept: int) -> None:
    versions = OffsetVersions()
    versions.put("G", "T", 0, kept)
    told = min(kept + VERSION_STEP_MAX, VERSION_MAX)
    assert versions.is_believed("G", "T", 0, told)
    assert versions.is_believed("G", "T", 0, 0)
    assert not versions.is_believed("G", "T", 0, told + 1)
    assert not versions.is_believed("G", "T", 0, -1)
    following = versions.next("G", "T", 0, told)
    assert following == min(told + 1, VERSION_MAX)
    versions.put("G", "T", 0, following)
    assert reloaded(versions).get("G", "T", 0) == following
    versions.put("G", "T", 0, VERSION_MAX + 1)  # as older versions did
    assert reloaded(versions).get("G", "T", 0) == VERSION_MAX


def test_tokens_rise_across_restarts_even_when_the_clock_goes_back() -> None:
    versions = OffsetVersions()
    first = versions.first_token(now_ms=1000)
    assert first == 1000 * TOKENS_PER_MS
    given = first + 5_000_000
    versions.reserve_tokens(given)
    again = reloaded(versions)
    assert again.first_token(now_ms=10) > given
    assert again.first_token(now_ms=1 << 40) == (1 << 40) * TOKENS_PER_MS


def test_tokens_are_reserved_in_large_blocks_ahead_of_use() -> None:
    versions = OffsetVersions()
    first = versions.first_token(now_ms=1)
    changes = versions.changes
    versions.reserve_tokens(first + 1000)
    assert versions.changes == changes
    versions.reserve_tokens(first + 600_000)
    assert versions.changes == changes + 1
    assert versions.tokens_end > first + 1_500_000


def test_versions_of_missing_topics_are_left_out() -> None:
    versions = OffsetVersions()
    versions.put("G", "T", 0, 1)
    versions.put("G", "Gone", 0, 1)
    versions.keep_topics(lambda topic: topic == "T")
    assert versions.get("G", "T", 0) == 1
    assert versions.get("G", "Gone", 0) == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"versionTable":{"T":{"0":1}}}',
        '{"versionTable":{"T@G@H":{"0":1}}}',
        '{"versionTable":{"@G":{"0":1}}}',
        '{"versionTable":{"T@G":{"-1":1}}}',
        '{"versionTable":{"T@G":{"0":-1}}}',
        '{"versionTable":{"T@G":{"0":"1"}}}',
        '{"versionTable":{"T@G":{"x":1}}}',
        '{"versionTable":{"T@G":1}}',
        '{"lockTokensEnd":-1}',
        '{"lockTokensEnd":true}',
    ],
)
def test_malformed_file_is_no_table(text: str) -> None:
    with pytest.raises(ValueError, match=r"version|lockTokensEnd|object|invalid literal"):
        OffsetVersions.from_dict(parse_json(text))
