import subprocess
import sys
from pathlib import Path

from tests.support.processes import running_dev

PROGRAM = """
import signal, subprocess, sys
from ternmq import BlockingProducer, Message

def prepare():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

with BlockingProducer("forks", nameserver=sys.argv[1]) as producer:
    for _ in range(40):
        producer.send(Message("Forks", b""))
        child = subprocess.run([sys.executable, "-V"], preexec_fn=prepare, capture_output=True)
        assert child.returncode == 0, child
print("all began")
"""


def test_forked_programs_start_beside_a_living_client(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with running_dev(tmp_path) as dev:
        found = subprocess.run(
            [sys.executable, program, dev.nameserver],
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
        )
    assert found.stdout == "all began\n", found.stderr
    assert "fork" not in found.stderr
