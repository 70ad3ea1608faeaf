import socket
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.config import BrokerConfig, BrokerRole
from ternmq_model.address import Address
from ternmq_model.errors import ConfigError
from ternmq_model.message_id import host_text


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cluster", ""),
        ("name", "a b"),
        ("broker_id", -1),
        ("broker_id", 100),
        ("role", BrokerRole.SLAVE),
        ("in_sync_replicas", 2),
        ("in_sync_replicas", 33),
        ("refuse_without_replicas", True),
        ("slave_timeout_ms", 0),
        ("listen", "a:b:c]"),
        ("listen", "a b"),
        ("listen", "*"),
        ("hostname", "bad host!"),
        ("hostname", "0.0.0.0"),
        ("hostname", "*"),
        ("port", 65_536),
        ("plain_port", 0),
        ("plain_port", 65_536),
        ("advertised", ("nowhere",)),
        ("advertised", ("host:0",)),
        ("nameservers", ("127.0.0.1",)),
        ("store_host", "a-name"),
        ("region", "a\x01"),
        ("default_topic_queues", 0),
        ("registration_interval_ms", 1),
        ("stream_unanswered_max_bytes", 1 << 40),
        ("pull_wait_max_ms", -1),
    ],
)
def test_impossible_setting_is_named(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"broker.{setting}=") as caught:
        BrokerConfig(data=Path("x"), **{setting: value})
    assert caught.value.setting == f"broker.{setting}"
    if not isinstance(value, tuple):
        assert caught.value.value == value


@pytest.mark.parametrize(
    ("setting", "value", "culprit"),
    [
        ("nameservers", ("a:1", "a:1", "b:0"), "b:0"),
        ("nameservers", ("a:1", "*:2"), "*:2"),
        ("nameservers", ("0.0.0.0:9876",), "0.0.0.0:9876"),
        ("advertised", ("*:1", "0.0.0.0:1"), "0.0.0.0:1"),
        ("advertised", ("[0::0]:1",), "[0::0]:1"),
        ("advertised", ("a!:1",), "a!:1"),
    ],
)
def test_undialable_address_among_several_is_named(setting: str, value: Any, culprit: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(**{setting: value})
    assert (caught.value.setting, caught.value.value) == (f"broker.{setting}", culprit)


def test_bad_name_is_reported_once() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(name="bad name")
    assert str(caught.value).count("bad name") == 1


def test_machine_with_an_illegal_name_registers_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "bad name")
    assert list(BrokerConfig(listen="0::0").endpoints(7)) == [Address("*", 7)]
    both = BrokerConfig(listen="0::0", plain_port=8)
    assert list(both.endpoints(7)) == [Address("*", 7), Address("*", 8)]


@pytest.mark.parametrize(
    ("settings", "endpoints", "store_host"),
    [
        ({}, [("127.0.0.1", 7)], "127.0.0.1:7"),
        ({"listen": "10.0.0.1"}, [("10.0.0.1", 7)], "10.0.0.1:7"),
        ({"listen": "0.0.0.0", "hostname": "box"}, [("box", 7), ("*", 7)], "10.5.5.5:7"),
        ({"listen": "0.0.0.0", "advertised": ("*:9",)}, [("*", 9)], "10.5.5.5:7"),
        ({"listen": "0.0.0.0", "store_host": "10.9.9.9"}, None, "10.9.9.9:7"),
        (
            {"listen": "0.0.0.0", "advertised": ("broker.example:99", "10.0.0.2:99")},
            [("broker.example", 99), ("10.0.0.2", 99)],
            "10.0.0.2:7",
        ),
        ({"listen": "::1"}, [("::1", 7)], "[::1]:7"),
    ],
)
def test_endpoints_and_store_host_follow_the_listen_address(
    settings: dict[str, Any], endpoints: list[tuple[str, int]] | None, store_host: str
) -> None:
    config = BrokerConfig(**settings)
    if endpoints is not None:
        assert list(config.endpoints(7)) == [Address(*each) for each in endpoints]
    assert host_text(config.store_host_bytes(7, own_host="10.5.5.5")) == store_host


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, 1),
        ({"role": BrokerRole.SYNC_MASTER}, 2),
        ({"role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 3}, 3),
        ({"role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 1}, 1),
        ({"role": BrokerRole.SLAVE, "broker_id": 1}, 2),
    ],
)
def test_role_sets_how_many_members_must_have_a_message(
    settings: dict[str, Any], needed: int
) -> None:
    assert BrokerConfig(**settings).replicas_needed == needed
