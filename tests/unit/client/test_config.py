"""Settings of a client, and how it names itself."""

import enum
from dataclasses import fields, replace
from random import Random

import pytest

from ternmq_client.config import (
    ClientConfig,
    nameserver_texts,
    resolve_client,
)
from ternmq_model.address import Address
from ternmq_model.default_nameserver import DEFAULT_NAMESERVER, NAMESERVER_VARIABLE
from ternmq_model.errors import ConfigError
from tools.project import ROOT


def test_default_is_a_nameserver_on_this_machine() -> None:
    assert ClientConfig().addresses() == (Address("127.0.0.1", 9876),)


def test_environment_names_the_nameservers_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(NAMESERVER_VARIABLE, "a:1,b:2")
    assert ClientConfig().addresses() == (Address("a", 1), Address("b", 2))
    assert ClientConfig(nameservers=("c:3",)).addresses() == (Address("c", 3),)
    monkeypatch.setenv(NAMESERVER_VARIABLE, "")
    assert ClientConfig().nameservers == (DEFAULT_NAMESERVER,)


def test_nameservers_are_read_in_every_usual_form() -> None:
    assert nameserver_texts("a:1;b:2, c:3") == ("a:1", "b:2", "c:3")
    assert nameserver_texts(["a:1", "b:2;c:3"]) == ("a:1", "b:2", "c:3")
    config = ClientConfig(nameservers=("a:1", "[::1]:2", "a:1"))
    assert config.addresses() == (Address("a", 1), Address("::1", 2))


def test_nameserver_is_one_of_the_client_unless_given() -> None:
    named = ClientConfig(nameservers=("a:1",), trace=True)
    assert resolve_client(None, None) == ClientConfig()
    assert resolve_client(None, named) is named
    assert resolve_client("b:2", ClientConfig(trace=True)) == replace(named, nameservers=("b:2",))
    assert resolve_client("a:1", named) == named


def test_same_nameservers_in_another_form_are_no_contradiction() -> None:
    listed = ClientConfig(nameservers=["b:2", "a:1"])  # type: ignore[arg-type]
    assert listed.nameservers == ("b:2", "a:1")
    assert resolve_client(["a:1", "b:2"], listed).nameservers == ("a:1", "b:2")


def test_nameservers_that_nobody_named_contradict_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMESERVER_VARIABLE, "a:1")
    unnamed = replace(ClientConfig(), trace=True)
    monkeypatch.setenv(NAMESERVER_VARIABLE, "b:2")
    assert resolve_client("c:3", unnamed).nameservers == ("c:3",)
    named = ClientConfig(nameservers=("b:2",))
    with pytest.raises(ConfigError, match="has other addresses"):
        resolve_client("c:3", named)


class Name(str, enum.Enum):  # noqa: UP042 - `StrEnum` is formatted otherwise
    OWN = "own"


def test_instance_is_named_by_any_kind_of_string() -> None:
    config = ClientConfig(host_name="h", instance_name=Name.OWN)
    assert config.client_id(now_ms=5, random=Random(1)) == "h@own"


def test_two_answers_to_where_the_nameservers_are_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"nameserver='b:2': client.nameservers=\('a:1',\) has other"
    ):
        resolve_client("b:2", ClientConfig(nameservers=("a:1",)))


@pytest.mark.parametrize(
    "changes",
    [
        {"nameservers": ()},
        {"nameservers": ("nowhere",)},
        {"nameservers": 5},
        {"nameservers": [5]},
        {"heartbeat_s": float("inf")},
        {"host_name": "a@b"},
        {"instance_name": "a\x01"},
        {"heartbeat_s": 0},
        {"request_timeout_s": float("nan")},
    ],
)
def test_impossible_setting_is_named(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as told:
        ClientConfig(**changes)  # type: ignore[arg-type]
    assert told.value.setting == f"client.{next(iter(changes))}"


def test_clients_of_one_process_never_share_an_id() -> None:
    config, random = ClientConfig(host_name="h"), Random(1)
    ids = {config.client_id(now_ms=5, random=random) for _ in range(100)}
    assert len(ids) == 100
    assert all(each.startswith("h@") for each in ids)
    named = ClientConfig(host_name="h", instance_name="DEFAULT")
    assert named.client_id(now_ms=5, random=random) == "h@DEFAULT"


def test_every_setting_is_described() -> None:
    page = (ROOT / "docs/reference/client-settings.md").read_text()
    for setting in fields(ClientConfig):
        assert f"| `{setting.name}` |" in page
