from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from ternmq_model.errors import ConfigError, SettingsError
from ternmq_runtime.settings.loader import load_settings


class FlushMode(Enum):
    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, kw_only=True, slots=True)
class Broker:
    name: str = "broker-a"
    flush_mode: FlushMode = FlushMode.SYNC
    file_bytes: int = 1 << 30
    queues: int = 8
    queues_max: int = 64

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("broker.name", self.name, "must not be empty")
        if self.queues > self.queues_max:
            raise ConfigError("broker.queues", self.queues, "must be at most broker.queues_max")


@dataclass(frozen=True, kw_only=True, slots=True)
class NameServer:
    port: int = 9876
    expire_s: float = 120.0

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError("port", self.port, "must be a port, 0 to 65535")
        if self.expire_s <= 0:
            raise ConfigError("expire_s", self.expire_s, "must be above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    root: Path


SECTIONS = {"broker": Broker, "nameserver": NameServer}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def problems(
    environ: dict[str, str] | None = None,
    flags: tuple[str, ...] = (),
    toml_path: Path | None = None,
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        load_settings(SECTIONS, toml_path=toml_path, environ=environ or {}, flags=flags)
    return refused.value.problems


def test_defaults_hold_when_nothing_is_given() -> None:
    settings = load_settings(SECTIONS, environ={"PATH": "/bin"})
    assert settings[Broker] == Broker()
    assert settings[NameServer] == NameServer()
    assert settings.origins == {}


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = write(
        tmp_path / "ternmq.toml",
        '[broker]\nname = "from-file"\nqueues = 1\nflush_mode = "async"\n',
    )
    settings = load_settings(
        SECTIONS,
        toml_path=file,
        environ={"TERNMQ_BROKER__QUEUES": "2", "TERNMQ_BROKER__FILE_BYTES": "64MiB"},
        flags=["broker.file_bytes=1MiB", "broker.file_bytes=2MiB"],
    )
    assert settings[Broker] == Broker(
        name="from-file", flush_mode=FlushMode.ASYNC, queues=2, file_bytes=2 << 20
    )
    assert settings.origins == {
        "broker.name": f"file {file}",
        "broker.flush_mode": f"file {file}",
        "broker.queues": "environment TERNMQ_BROKER__QUEUES",
        "broker.file_bytes": "flag --set",
    }


def test_environment_may_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "ternmq.toml", "[nameserver]\nport = 1\n")
    other = write(tmp_path / "other.toml", "[nameserver]\nport = 2\n")
    environ = {"TERNMQ_CONFIG": str(file)}
    assert load_settings(SECTIONS, environ=environ)[NameServer].port == 1
    assert load_settings(SECTIONS, environ=environ, toml_path=other)[NameServer].port == 2


def test_value_may_contain_equals_signs() -> None:
    assert load_settings(SECTIONS, environ={}, flags=["broker.name=a=b"])[Broker].name == "a=b"


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "t.toml", "[broker]\nqueues = true\nqueue = 3\n[nameserver]\nport = -1")
    found = problems(
        environ={"TERNMQ_BROKER__FLUSH_MODE": "asink", "TERNMQ_FLUSH_MODE": "async"},
        flags=("broker.file_bytes=64MB", "broker.flush-mode=async", "verbose"),
        toml_path=file,
    )
    assert sorted(found) == [
        "--set 'verbose': must be section.name=value",
        "TERNMQ_FLUSH_MODE='async': no such setting; did you mean 'TERNMQ_BROKER__FLUSH_MODE'?"
        " (environment)",
        "broker.file_bytes='64MB': must be a size such as 512KiB, 64MiB, 1GiB, or a number of"
        " bytes (flag --set)",
        "broker.flush-mode='async': no such setting; did you mean 'broker.flush_mode'?"
        " (flag --set)",
        "broker.flush_mode='asink': must be one of sync, async"
        " (environment TERNMQ_BROKER__FLUSH_MODE)",
        f"broker.queue=3: no such setting; did you mean 'broker.queues'? (file {file})",
        f"broker.queues=True: must be a whole number (file {file})",
        f"nameserver.port=-1: must be a port, 0 to 65535 (file {file})",
    ]


def test_error_reads_as_a_list() -> None:
    with pytest.raises(SettingsError, match=r"cannot work:\n  broker\.queues='x': must be"):
        load_settings(SECTIONS, environ={}, flags=["broker.queues=x"])


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("broker.flushmode=async", "broker.flush_mode"),
        ("broker.flushMode=async", "broker.flush_mode"),
        ("flush_mode=async", "broker.flush_mode"),
        ("store.expire_s=3", "nameserver.expire_s"),
        ("nameserver.prot=3", "nameserver.port"),
    ],
)
def test_misspelt_setting_gets_a_suggestion(flag: str, meant: str) -> None:
    [problem] = problems(flags=(flag,))
    assert f"did you mean '{meant}'?" in problem


def test_name_like_no_other_gets_no_suggestion() -> None:
    assert problems(flags=("zzz.qqq=1",)) == ("zzz.qqq='1': no such setting (flag --set)",)


def test_relation_between_settings_is_checked_and_names_the_source() -> None:
    assert problems(flags=("broker.queues=100",)) == (
        "broker.queues=100: must be at most broker.queues_max (flag --set)",
    )
    assert problems(flags=("broker.queues_max=4",)) == (
        "broker.queues=8: must be at most broker.queues_max (default)",
    )


def test_every_value_refused_by_a_section_is_named() -> None:
    assert sorted(problems({"TERNMQ_BROKER__QUEUES": "9"}, SEVERAL_BAD)) == [
        "broker.flush_mode='x': must be one of sync, async (flag --set)",
        "broker.name='': must not be empty (flag --set)",
        "broker.queues=9: must be at most broker.queues_max (environment TERNMQ_BROKER__QUEUES)",
        "nameserver.expire_s=0.0: must be above 0 (flag --set)",
        "nameserver.port=70000: must be a port, 0 to 65535 (flag --set)",
    ]


SEVERAL_BAD = (
    "broker.flush_mode=x",
    "broker.name=",
    "broker.queues_max=8",
    "nameserver.port=70000",
    "nameserver.expire_s=0",
)


def test_default_is_not_blamed_for_a_value_reset_to_its_own() -> None:
    assert problems(flags=("broker.queues_max=4", "broker.queues=x")) == (
        "broker.queues='x': must be a whole number (flag --set)",
    )


def test_bad_required_value_is_named_once() -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"store": Store}, environ={}, flags=["store.root="])
    assert refused.value.problems == ("store.root='': must be a path, not empty (flag --set)",)


def test_bad_value_overridden_by_another_source_is_still_reported() -> None:
    assert len(problems({"TERNMQ_BROKER__QUEUES": "x"}, ("broker.queues=1",))) == 1


def test_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    torn = write(tmp_path / "torn.toml", "[broker\n")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert problems(toml_path=missing) == (
        f"file {missing}: cannot be read: No such file or directory",
    )
    assert problems(toml_path=torn)[0].startswith(f"file {torn}: is not TOML: ")
    assert problems(toml_path=binary)[0].startswith(f"file {binary}: is not TOML: ")


def test_settings_outside_a_table_and_tables_in_tables_are_unknown(tmp_path: Path) -> None:
    file = write(tmp_path / "t.toml", "flush_mode = 'async'\n[broker.deep]\nqueues = 1\n")
    found = problems(toml_path=file)
    assert len(found) == 2
    assert all("no such setting" in problem for problem in found)


def test_setting_without_a_default_must_be_given() -> None:
    with pytest.raises(SettingsError, match=r"store\.root: must be set"):
        load_settings({"store": Store}, environ={})
    settings = load_settings({"store": Store}, environ={}, flags=["store.root=/data"])
    assert settings[Store].root == Path("/data")


def test_reserved_variables_are_no_settings() -> None:
    environ = {"TERNMQ_NAME": "127.0.0.1:9876", "TERNMQ_CONFIG": ""}
    load_settings(SECTIONS, environ=environ, reserved=["TERNMQ_NAME"])
    [problem] = problems(environ)
    assert problem.startswith("TERNMQ_NAME=")


@pytest.mark.parametrize(
    "variable",
    [
        "TERNMQ_BROKER_QUEUES",
        "TERNMQ_BROKER_FLUSHMODE",
        "TERNMQ_FLUSH_MODE",
        "TERNMQ_CONFG",
        "TERNMQ_BROKR__QUEUES",
        "TERNMQ_ANYTHING__ELSE",
    ],
)
def test_variable_meant_as_a_setting_is_a_problem(variable: str) -> None:
    [problem] = problems({variable: "1"})
    assert problem.startswith(f"{variable}='1': no such setting")


def test_variables_of_others_are_ignored() -> None:
    environ = {"TERNMQ_BASE": "python:3.12", "TERNMQ_WHEELS": "only"}
    for service in ("TERNMQ", "TERNMQ_BROKER", "TERNMQ_NAMESERVER"):
        environ |= {  # as Kubernetes tells containers of its services
            f"{service}_SERVICE_HOST": "10.0.0.7",
            f"{service}_SERVICE_PORT": "9876",
            f"{service}_SERVICE_PORT_GRPC": "9876",
            f"{service}_PORT": "tcp://10.0.0.7:9876",
            f"{service}_PORT_9876_TCP": "tcp://10.0.0.7:9876",
            f"{service}_PORT_9876_TCP_PROTO": "tcp",
            f"{service}_PORT_9876_TCP_PORT": "9876",
            f"{service}_PORT_9876_TCP_ADDR": "10.0.0.7",
        }
    assert load_settings(SECTIONS, environ=environ).origins == {}
