import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.config import BrokerConfig
from ternmq_broker.live_settings import ALLOWED, LiveSettings
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_store.config import StoreConfig

FIELDS = {
    f"{section}.{field.name}": (kind, field)
    for section, kind in (("broker", BrokerConfig), ("store", StoreConfig))
    for field in dataclasses.fields(kind)
}
NAMES = st.one_of(
    st.sampled_from(sorted(FIELDS)),
    st.sampled_from(sorted(FIELDS)).map(str.upper),
    st.builds("{}.{}".format, st.sampled_from(("broker", "store", "", "os")), st.text()),
    st.text(),
)
VALUES = st.one_of(
    st.text(),
    st.integers().map(str),
    st.sampled_from(("true", "off", "/etc/passwd", "../x", "10.0.0.1:80", "$(id)", "1e400", "nan")),
)


def live() -> LiveSettings:
    return LiveSettings(BrokerConfig(), StoreConfig())


def answer(settings: LiveSettings, values: dict[str, str]) -> tuple[int, dict[str, str]]:
    try:
        return Code.SUCCESS, settings.update(values)
    except RefusedError as error:
        return error.code, {}


def changed(settings: LiveSettings) -> dict[str, object]:
    before = live()
    return {
        name: getattr(getattr(settings, name.partition(".")[0]), field.name)
        for name, (_, field) in FIELDS.items()
        if getattr(getattr(settings, name.partition(".")[0]), field.name)
        != getattr(getattr(before, name.partition(".")[0]), field.name)
    }


def test_numbers_and_switches_alone_may_be_changed() -> None:
    assert list(ALLOWED) == sorted(ALLOWED)
    for name, bounds in ALLOWED.items():
        kind, field = FIELDS[name]
        assert field.type is (bool if bounds is None else int), kind
    assert not {name for name in ALLOWED if isinstance(FIELDS[name][1].default, Path)}


def test_files_hosts_and_addresses_cannot_be_changed() -> None:
    for name in ("data", "listen", "port", "advertised", "hostname", "store_host", "nameservers"):
        assert f"broker.{name}" in FIELDS
        assert f"broker.{name}" not in ALLOWED


@given(values=st.dictionaries(NAMES, VALUES, max_size=4))
def test_update_changes_nothing_but_what_was_requested(values: dict[str, str]) -> None:
    settings = live()
    code, told = answer(settings, values)
    now = changed(settings)
    if code is not Code.SUCCESS:
        assert code is Code.INVALID_PARAMETER
        assert not now
        return
    assert set(values) <= set(ALLOWED)
    assert told.keys() == now.keys() <= set(values)
    for name, value in now.items():
        bounds = ALLOWED[name]
        if bounds is None:
            assert isinstance(value, bool)
        else:
            assert isinstance(value, int)
            assert bounds.least <= value <= bounds.most


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_every_live_setting_can_be_changed_within_its_bounds(name: str) -> None:
    bounds = next(one.bounds for one in live().listed() if one.name == name)
    section, _, field = name.partition(".")
    for wanted in ("off", "on") if bounds is None else map(str, bounds):
        settings = live()
        # Limits that must stay in the order they are in.
        if name == "broker.stream_unanswered_max_bytes":
            settings.update({"broker.unanswered_max_bytes": str(1 << 36)})
        beside: dict[str, str] = {}
        if name == "store.disk_force_percent":
            beside = {"store.disk_clean_percent": "50"}
        if name == "broker.unanswered_max_bytes":
            beside = {"broker.stream_unanswered_max_bytes": str(1 << 20)}
        settings.update({name: wanted, **beside})
        value = getattr(getattr(settings, section), field)
        assert value == ({"on": True, "off": False}.get(wanted) if bounds is None else int(wanted))
    for wrong in ("maybe", "") if bounds is None else (bounds.least - 1, bounds.most + 1, "x", ""):
        with pytest.raises(RefusedError, match=name) as caught:
            live().update({name: str(wrong)})
        assert caught.value.code == Code.INVALID_PARAMETER


def test_update_changes_all_settings_or_none() -> None:
    settings = live()
    with pytest.raises(RefusedError, match=r"'broker\.data' cannot change") as caught:
        settings.update({"broker.unread_max_ms": "300", "broker.data": "/tmp"})
    assert caught.value.code == Code.INVALID_PARAMETER
    assert not changed(settings)


def test_inconsistent_values_are_refused() -> None:
    with pytest.raises(RefusedError, match="stream_unanswered_max_bytes"):
        live().update({"broker.stream_unanswered_max_bytes": "128MiB"})
    with pytest.raises(
        RefusedError, match=r"disk_force_percent=80.* >= store.disk_clean_percent, 81"
    ):
        live().update({"store.disk_clean_percent": "81", "store.disk_force_percent": "80"})


@pytest.mark.parametrize(
    "values",
    [
        {"store.disk_clean_percent": "10"},
        {"store.disk_force_percent": "30"},
        {"store.disk_full_percent": "35"},
        {"store.disk_full_percent": "85"},
        {"store.file_reserved_hours": "4"},
        {"store.forced_reserved_hours": "5"},
    ],
)
def test_settings_that_would_delete_young_files_are_refused(values: dict[str, str]) -> None:
    settings = LiveSettings(BrokerConfig(), StoreConfig(forced_reserved_hours=5))
    with pytest.raises(RefusedError, match=next(iter(values))):
        settings.update(values)
    assert settings.store == StoreConfig(forced_reserved_hours=5)
    assert settings.update({"store.file_reserved_hours": "5"})


def test_hours_below_the_floor_may_be_raised_and_not_lowered() -> None:
    settings = LiveSettings(BrokerConfig(), StoreConfig(file_reserved_hours=2))
    assert settings.update({"store.file_reserved_hours": "3"})
    with pytest.raises(RefusedError, match="must be 3 to"):
        settings.update({"store.file_reserved_hours": "2"})


def test_change_listeners_are_called_after_each_update() -> None:
    settings = live()
    told: list[int] = []
    settings.on_change(lambda: told.append(settings.broker.unread_max_ms))
    assert settings.update({"broker.unread_max_ms": "0.3s"}) == {"broker.unread_max_ms": "300"}
    assert settings.update({"broker.unread_max_ms": "300"}) == {}
    assert told == [300, 300]


def test_settings_are_listed_with_bounds_and_meaning() -> None:
    settings = live()
    settings.update({"broker.trace": "no"})
    listed = {one.name: one for one in settings.listed()}
    assert list(listed) == list(ALLOWED)
    assert listed["broker.trace"].value == "false"
    assert listed["broker.unread_max_ms"].bounds == (1, 60_000)
    assert all(one.doc for one in listed.values())
