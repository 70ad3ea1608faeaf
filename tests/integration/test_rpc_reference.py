import re
import subprocess
import sys
from pathlib import Path

from ternmq_model.errors import refusal
from ternmq_model.response_code import RETRYABLE_CODES, ResponseCode
from ternmq_remoting.rpc import UnaryRpc
from ternmq_remoting.service_methods import ALL
from ternmq_remoting.status import status_of_error
from tests.support.processes import running_dev
from tools.project import ROOT

PAGE = (ROOT / "docs" / "reference" / "rpc.md").read_text()


def test_rpc_page_lists_every_rpc_under_its_service() -> None:
    found: set[tuple[str, str, str, str]] = set()
    for section in PAGE.split("\n### ")[1:]:
        service = section.partition(",")[0]
        for row in re.finditer(r"\| `(\w+)` \| (unary|stream) \| ([\d, ]*)\|", section):
            found.add((service, row[1], row[2], row[3].strip()))
    told = set[tuple[str, str, str, str]]()
    for rpc in ALL:
        service = rpc.service.removeprefix("ternmq.v1.")
        if isinstance(rpc, UnaryRpc):
            answers = ", ".join(map(str, sorted(rpc.answers)))
            told.add((service, rpc.name, "unary", answers))
        else:
            told.add((service, rpc.name, "stream", ""))
    assert found == told


def test_rpc_page_describes_every_code_as_the_tables_do() -> None:
    rows = re.findall(r"\| (\d+) \| `(\w+)` \| .* \| (yes|no) \| `(\w+)` \| `(\w+)` \|", PAGE)
    assert rows == [
        (
            str(int(code)),
            code.name,
            "yes" if code in RETRYABLE_CODES else "no",
            status_of_error(refusal(code, "")).code,
            type(refusal(code, "")).__name__,
        )
        for code in ResponseCode
        if code
    ]


def test_raw_stub_example_sends_a_message_and_pulls_it(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "raw.py"
    script.write_text(example)

    with running_dev(tmp_path) as dev:
        done = subprocess.run(
            [sys.executable, script, dev.broker], capture_output=True, text=True, timeout=150
        )
    assert (done.stderr, done.returncode) == ("", 0)
    sent, pulled = done.stdout.splitlines()
    assert re.fullmatch(r"sent [0-9A-F]{32} to queue \d+ at 0", sent)
    assert pulled == "pulled one coffee"
