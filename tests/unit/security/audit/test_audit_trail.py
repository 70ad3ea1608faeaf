"""The audit trail: lines reach the file soon, and a disk that refuses fails no call."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ternmq_model.address import Address
from ternmq_remoting.security_event import EventKind, SecurityEvent
from ternmq_remoting.system_environment import system_environment
from ternmq_security.audit import audit_trail
from ternmq_security.audit.audit_config import BYTES_LEAST, AuditConfig
from ternmq_security.audit.audit_trail import AuditTrail, audited
from ternmq_security.audit.event_limit import WINDOW_MS
from ternmq_testing.memory.inline_blocking import InlineBlocking
from tests.support.stores import HandClock


def event(action: str = "PutTopic", kind: EventKind = EventKind.ADMIN) -> SecurityEvent:
    return SecurityEvent(
        kind=kind, user="root", address=Address("h", 1), action=action, outcome="allowed"
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def trail_of(path: Path, clock: HandClock | None = None) -> AuditTrail:
    return AuditTrail(path, AuditConfig(file=path), clock or HandClock(), InlineBlocking())


async def until_idle(trail: AuditTrail) -> None:
    while await trail.job.step():
        pass


def test_lines_are_written_in_order_and_flushed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = trail_of(path)

    async def main() -> None:
        await trail.begin()
        assert path.stat().st_mode & 0o777 == 0o600
        names = [f"A{number}" for number in range(250)]
        for name in names[:200]:
            trail.note(event(name))
        await until_idle(trail)
        assert [each["action"] for each in lines(path)] == names[:200]
        for name in names[200:]:
            trail.note(event(name))
        await trail.close()
        assert [each["action"] for each in lines(path)] == names

    asyncio.run(main())


def test_files_never_exceed_their_bound(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = AuditTrail(
        path, AuditConfig(file=path, max_bytes=BYTES_LEAST), HandClock(), InlineBlocking()
    )

    async def main() -> None:
        for number in range(60):
            trail.note(replace(event(f"A{number}"), details="d" * 2000))
        await trail.close()

    asyncio.run(main())
    files = sorted(tmp_path.iterdir())
    assert len(files) > 1
    assert all(each.stat().st_size <= BYTES_LEAST for each in files)
    found = [each["action"] for file in reversed(files) for each in lines(file)]
    assert found == [f"A{number}" for number in range(60)]


def test_repeats_are_written_after_their_window_or_at_the_end(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", HandClock()
    trail = trail_of(path, clock)

    async def main() -> None:
        for _ in range(5):
            trail.note(event(kind=EventKind.REFUSED))
        await until_idle(trail)
        assert [each["count"] for each in lines(path)] == [1]
        clock.now_ms += WINDOW_MS
        await until_idle(trail)
        assert [each["count"] for each in lines(path)] == [1, 4]
        for _ in range(3):
            trail.note(event(kind=EventKind.REFUSED))
        await trail.close()
        assert [each["count"] for each in lines(path)] == [1, 4, 1, 2]

    asyncio.run(main())


def test_flood_of_one_user_pushes_out_no_change_of_users(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", HandClock()
    config = AuditConfig(file=path, max_bytes=BYTES_LEAST, files=8)
    trail = AuditTrail(path, config, clock, InlineBlocking())
    noted = 0

    async def main() -> None:
        nonlocal noted
        trail.note(event("PutAccess"))
        for _ in range(9):
            for number in range(500):
                for outcome in ("allowed", "INVALID_PARAMETER"):
                    change = replace(event(), user="shop", resource=f"topic:{number}")
                    trail.note(replace(change, outcome=outcome, details="\U0010ffff" * 9999))
                    noted += 1
            clock.now_ms += WINDOW_MS
            await until_idle(trail)
        await trail.close()

    asyncio.run(main())
    found = [each for file in tmp_path.iterdir() for each in lines(file)]
    assert [each["user"] for each in found if each["action"] == "PutAccess"] == ["root"]
    assert sum(each["count"] for each in found) == noted + 1


def test_refusing_disk_is_logged_once_and_lost_lines_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_trail, "LINES_MAX", 3)
    folder = tmp_path / "later"
    path = folder / "audit.jsonl"
    trail = trail_of(path)

    async def main() -> None:
        await trail.begin()
        for number in range(8):
            trail.note(event(f"A{number}"))
            await until_idle(trail)
        assert trail.failures == 9
        assert len(caplog.records) == 1
        assert "audit trail not written" in caplog.text
        folder.mkdir()
        await until_idle(trail)
        trail.note(event("A8"))
        await until_idle(trail)
        found = [each.get("action", each["event"]) for each in lines(path)]
        assert found == ["A0", "A1", "A2", "lost", "A8"]
        assert lines(path)[3]["count"] == 5

    asyncio.run(main())


def test_lines_that_the_disk_refuses_at_the_end_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trail = trail_of(tmp_path / "missing" / "audit.jsonl")
    trail.note(event())
    asyncio.run(trail.close())
    assert "lines of the audit trail lost" in caplog.text
    assert "lines=1" in caplog.text


def test_environment_reports_while_its_block_runs(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def main() -> None:
        async with system_environment() as process:
            async with audited(AuditConfig(), process) as env:
                assert env is process
            async with audited(AuditConfig(file=path), process) as env:
                assert env.on_security_event is not None
                env.on_security_event(event())
                env.on_security_event(event("last"))
        assert [each["action"] for each in lines(path)] == ["PutTopic", "last"]

    asyncio.run(main())
