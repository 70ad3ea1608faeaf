"""`ternmq transaction`: what a killed writer has staged is found and rolled back."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokersUnreachable, UnreachableBroker
from ternmq_client.admin.open_transactions import StagedRollback
from tests.support.console import invoke
from tests.support.processes import ROOT, TERNMQ, kill, running_dev

WRITER: Final = """
import asyncio, sys
from ternmq_model.message import Message
from ternmq_producer.staging import StagingProducer

async def main():
    async with StagingProducer("sink", nameserver=sys.argv[1]) as producer:
        rows = [Message("paid", b"%d" % row) for row in range(500)]
        await producer.stage(rows, staged_for="stream/7", immunity_s=3000)
        await producer.stage(rows[:3], staged_for="stream/8", immunity_s=3000)
        print("staged", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_rows_of_a_killed_writer_are_listed_and_rolled_back(tmp_path: Path) -> None:
    with running_dev(tmp_path) as dev:
        asked = ("--nameserver", dev.nameserver)
        assert invoke("topic", "create", "paid", "--queues", "2", *asked).exit_code == 0
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, dev.nameserver],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "staged\n"
        finally:
            kill(writer)

        found = invoke("transaction", "list", "--query", "stream", "--json", *asked)
        told = [(one["query"], one["batch"], one["rows"]) for one in json.loads(found.stdout)]
        assert told == [("stream", 7, 500), ("stream", 8, 3)]
        table = invoke("transaction", "list", "--query", "stream", "--batch", "7", *asked)
        head, row = table.stdout.splitlines()
        assert head.split()[:7] == ["query", "batch", "broker", "group", "topic", "rows", "age"]
        assert row.split()[:6] == ["stream", "7", "broker-a", "sink", "paid", "500"]

        rollback = ("transaction", "rollback", "--query", "stream", "--batch", "7")
        refused = invoke(*rollback, "--yes", *asked)
        assert refused.exit_code == 1
        assert "stream/7 may be in use" in refused.stderr
        kept = invoke(*rollback, "--force", *asked, stdin="n\n")
        assert kept.exit_code == 1
        assert "broker-a: 500 of stream/7 for topic paid" in kept.stderr
        # As an operator has it: a process of its own.
        done = subprocess.run(
            [*TERNMQ, *rollback, "--force", "--yes", "--json", *asked],
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout) == [
            {"broker": "broker-a", "rolled_back": 500, "already_ended": 0}
        ]

        again = invoke(*rollback, "--yes", *asked)
        assert (again.exit_code, again.stderr) == (3, "ternmq: nothing is staged for stream/7\n")
        (left,) = json.loads(invoke("transaction", "list", "--json", *asked).stdout)
        assert (left["query"], left["batch"], left["rows"]) == ("stream", 8, 3)


@pytest.mark.parametrize(
    ("failure", "code", "told"),
    [
        (KeyboardInterrupt(), 1, "interrupted; rolled back: 1024 on broker-a; repeat"),
        (
            BrokersUnreachable([UnreachableBroker("broker-b", (), "is away")]),
            4,
            "or name those that answer by --broker",
        ),
    ],
)
def test_roll_back_cut_short_tells_what_to_do(
    failure: BaseException, code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_short(
        admin: AdminClient,
        staged_for: str,
        *,
        progress: Callable[[StagedRollback], None],
        **how: object,
    ) -> list[StagedRollback]:
        progress(StagedRollback("broker-a", 1024, 0))
        raise failure

    monkeypatch.setattr(AdminClient, "roll_back_staged", cut_short)
    done = invoke("transaction", "rollback", "--query", "q", "--yes")
    assert done.exit_code == code
    assert told in done.stderr
