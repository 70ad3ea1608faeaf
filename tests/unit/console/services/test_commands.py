"""What `ternmq dev` makes of its settings."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ternmq_console.main import ternmq
from ternmq_console.services.commands import (
    SECTIONS,
    DevServices,
    dev_log_members,
    dev_sections,
    hint_at,
    own_address,
    warn_of_readers,
)
from ternmq_model.address import Address
from ternmq_model.errors import CannotListen, SettingsError
from ternmq_runtime.settings.loader import LoadedSettings, load_settings


def loaded(
    *flags: str, environ: dict[str, str] | None = None, toml_path: Path | None = None
) -> LoadedSettings:
    return load_settings(SECTIONS, toml_path=toml_path, environ=environ or {}, flags=flags)


def data_of(settings: LoadedSettings) -> Sequence[str]:
    nameserver, broker, _ = dev_sections(settings)
    return [str(nameserver.data), str(broker.data)]


def test_dev_keeps_its_data_in_working_directory_by_default() -> None:
    assert data_of(loaded()) == [".ternmq/nameserver", ".ternmq/broker"]


def test_every_settings_source_overrides_the_default_of_dev(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('[broker]\ndata = "/file/b"\n[nameserver]\ndata = "/file/n"\n')
    environ = {"TERNMQ_BROKER__DATA": "/environ/b"}
    assert data_of(loaded(toml_path=file)) == ["/file/n", "/file/b"]
    assert data_of(loaded(toml_path=file, environ=environ)) == ["/file/n", "/environ/b"]
    assert data_of(loaded("broker.data=/flag", environ=environ)) == [".ternmq/nameserver", "/flag"]


def test_dev_makes_small_log_files_by_default() -> None:
    assert dev_sections(loaded())[2].commit_log_file_bytes == 64 << 20
    told = loaded("store.commit_log_file_bytes=1GiB")
    assert dev_sections(told)[2].commit_log_file_bytes == 1 << 30


def test_dev_forces_its_broker_to_be_master_by_default() -> None:
    assert dev_sections(loaded())[1].force_master
    assert not dev_sections(loaded("broker.force_master=false"))[1].force_master


@pytest.mark.parametrize(
    ("listening", "dialled"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.1", "127.0.0.1"), ("mq", "mq")],
)
def test_own_address_of_every_interface_is_the_loopback(listening: str, dialled: str) -> None:
    assert own_address(Address(listening, 9876)) == Address(dialled, 9876)


def test_lines_of_dev_name_the_service_by_the_package_of_their_logger() -> None:
    members = dev_log_members(loaded("broker.name=b", "nameserver.port=1"))
    assert members["ternmq_nameserver"] == {"nameserver": "127.0.0.1:1"}
    assert members["ternmq_broker"] == members["ternmq_store"] == {"broker": "b"}
    assert "ternmq_remoting" not in members


def test_dev_refuses_nameservers_it_would_not_use() -> None:
    environ = {"TERNMQ_BROKER__NAMESERVERS": "10.0.0.1:9876"}
    with pytest.raises(SettingsError) as refused:
        dev_sections(loaded(environ=environ))
    [problem] = refused.value.problems
    assert problem.startswith("broker.nameservers='10.0.0.1:9876': `dev` registers with its own")
    assert problem.endswith("(environment TERNMQ_BROKER__NAMESERVERS)")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--role slave", "broker.role='slave': needs a broker_id above 0"),
        ("--broker-id 100", "broker.broker_id=100: is reserved for a former master"),
        ("--broker-id -1", "broker.broker_id=-1"),
        ("--role sync --broker-id 1", "'sync' is not one of"),
    ],
)
def test_senseless_broker_role_is_refused(words: str, says: str, tmp_path: Path) -> None:
    told = ["broker", "--data", str(tmp_path), "--force-master", *words.split()]
    done = CliRunner().invoke(ternmq, told)
    assert done.exit_code == 2
    assert says in done.output


def test_process_of_dev_has_the_labels_of_its_broker_and_is_unready_before_it_starts() -> None:
    env: Any = None
    services = DevServices(loaded("broker.name=b", "broker.cluster=c"), env)
    assert services.node == ("c", "broker", "b")
    assert services.unready == "the services start"


@pytest.mark.parametrize(
    ("host", "warns"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("mq", True)]
)
def test_metrics_port_beyond_its_machine_is_warned_of(
    host: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_readers(Address(host, 9090))
    assert ("without TLS and users" in caplog.text) is warns


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("", "(choose another: --port-broker, 0 = any free)"),
        ("metrics.port: ", "(choose another: --metrics-port, 0 = none)"),
    ],
)
def test_taken_port_is_answered_with_its_option(setting: str, hint: str) -> None:
    error = CannotListen(f"{setting}cannot listen on 127.0.0.1:1: Address already in use")
    with pytest.raises(CannotListen) as refused, hint_at("--port-broker"):
        raise error
    assert str(refused.value) == f"{error} {hint}"
