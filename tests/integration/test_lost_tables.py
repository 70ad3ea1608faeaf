"""A broker whose tables are gone or damaged: what its processes say, and what goes on."""

import json
import os
from pathlib import Path

import pytest

from tests.support.console import invoke
from tests.support.processes import ENDS_WITHIN_S, TERNMQ, ServiceProcess, running_broker
from tests.support.rocketmq import contents

LOST = ("consumerOffset.json", "topics.json")


NO_OVERRIDE = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Lets root, too, read only what modes allow."""


def broker_in(folder: Path) -> ServiceProcess:
    """Start a broker without a NameServer."""
    return running_broker(folder / "a", "")


def refused(folder: Path) -> str:
    """Start a broker that ends by itself; return the last line of its log."""
    broker = broker_in(folder)
    assert broker.process.wait(ENDS_WITHIN_S) == 1
    broker.kill()
    return broker.log.read_text(encoding="utf-8").splitlines()[-1]


@pytest.mark.parametrize("is_killed", [False, True])
def test_broker_without_its_tables_names_them_and_serves_when_that_is_accepted(
    tmp_path: Path, *, is_killed: bool
) -> None:
    with broker_in(tmp_path) as broker:
        if is_killed:
            broker.kill()
    config, command = broker.data / "config", ("store", "repair", str(broker.data))
    for name in LOST:
        for path in config.glob(f"{name}*"):
            path.unlink()
    if not is_killed:
        line = refused(tmp_path)
        assert all(f"{config / name} is not there" in line for name in LOST)
        assert f"ternmq {' '.join(command)} --accept-tables" in line
    checked = invoke("store", "check", str(broker.data), "--json")
    assert checked.exit_code == 1
    *found, summary = [json.loads(line) for line in checked.stdout.splitlines()]
    problems = [row for row in found if row["kind"] == "problem"]
    assert {Path(row["file"]).name for row in problems} == set(LOST)
    assert any("The broker does not start" in sentence for sentence in summary["nextStart"])
    (decision,) = [row for row in found if row["kind"] == "decision"]
    assert decision["ways"][-1]["command"] == f"ternmq {' '.join(command)} --accept-tables"
    before = contents(config)
    shown = invoke(*command, "--accept-tables", "--dry-run")
    assert (shown.exit_code, contents(config)) == (0, before)
    assert all(f"go on without {name}" in shown.stdout for name in LOST)
    asked = invoke(*command, "--accept-tables")
    assert (asked.exit_code, contents(config)) == (2, before)
    done = invoke(*command, "--accept-tables", "--yes")
    assert done.stdout == f"{shown.stdout}done\n"
    with broker_in(tmp_path):
        pass
    assert invoke("store", "check", str(broker.data)).exit_code == 0
    assert invoke(*command, "--accept-tables").stdout == "nothing to accept\n"


def test_repair_names_the_tables_that_an_operator_must_decide(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        pass
    (broker.data / "config" / "delayOffset.json").write_text("{}", encoding="utf-8")
    (broker.data / "config" / "topics.json").write_text("{", encoding="utf-8")
    for path in (broker.data / "config").glob("topics.json.bak"):
        path.unlink()
    shown = invoke("store", "repair", str(broker.data), "--dry-run")
    assert "topics.json is damaged" in shown.stdout
    assert "--accept-tables" in shown.stdout
    assert "delayOffset.json" not in shown.stdout
    combined = invoke("store", "repair", str(broker.data), "--accept-tables", "--index")
    assert combined.exit_code == 2


def test_unreadable_table_refuses_the_start_and_no_older_one_is_taken(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        pass
    config = broker.data / "config"
    table = config / "topics.json"
    (config / "topics.json.bak").write_bytes(table.read_bytes())
    table.chmod(0)
    names = sorted(config.iterdir())
    launcher = (*(NO_OVERRIDE if os.geteuid() == 0 else ()), *TERNMQ)
    again = running_broker(tmp_path / "a", "", launcher=launcher)
    assert again.process.wait(ENDS_WITHIN_S) == 1
    again.kill()
    line = again.log.read_text(encoding="utf-8").splitlines()[-1]
    assert f"{table} exists but cannot be read: Permission denied" in line
    assert "make it readable for this user" in line
    assert sorted(config.iterdir()) == names
    table.chmod(0o600)
    with broker_in(tmp_path):
        pass
