import pytest

from tests.tidy.call_rules import RULES
from tests.tidy.source import lines_broken


@pytest.mark.parametrize(
    ("rule", "file", "text", "lines"),
    [
        (
            "only_the_clock_reads_clocks",
            "broker/ternmq_broker/x.py",
            "import time\nimport datetime as dt\nfrom time import monotonic as now\n"
            "time.time()\nnow()\ndt.datetime.now()\nclock.time()\nf = time.perf_counter\n",
            [4, 5, 6, 8],
        ),
        (
            "only_the_clock_reads_clocks",
            "runtime/ternmq_runtime/clock.py",
            "import time\ntime.time()\n",
            [],
        ),
        ("only_the_clock_reads_clocks", "tests/unit/x.py", "import time\ntime.time()\n", []),
        (
            "tasks_have_owners",
            "client/ternmq_client/x.py",
            "import asyncio\nasyncio.create_task(f())\nloop = asyncio.get_running_loop()\n"
            "loop.create_task(f())\nasyncio.get_running_loop().create_task(f())\n"
            "group.create_task(f())\nasyncio.ensure_future(f())\n",
            [2, 4, 5, 7],
        ),
        (
            "chance_has_a_seed",
            "client/ternmq_client/x.py",
            "import random, os\nfrom random import Random, shuffle\nrandom.random()\nshuffle(a)\n"
            "Random()\nRandom(1)\ndef f(random: random.Random): ...\nos.urandom(4)\n",
            [3, 4, 5, 8],
        ),
        (
            "nothing_unsafe_is_called",
            "tests/unit/x.py",
            "import os, re\neval('1')\nos.system('ls')\nrun('ls', shell=True)\nre.compile('a')\n"
            "from tempfile import mktemp\nmktemp()\n",
            [2, 3, 4, 7],
        ),
        (
            "maps_are_not_flushed",
            "store/ternmq_store/x.py",
            "self._map.flush()\nfile.flush()\nmm.flush(0, 10)\n",
            [1, 3],
        ),
        (
            "maps_are_not_flushed",
            "store/ternmq_store/x.py",
            "import mmap\nm = mmap.mmap(-1, 1)\nm.flush()\n",
            [3],
        ),
        (
            "arrays_become_bytes_by_a_layout",
            "store/ternmq_store/x.py",
            "file.write(0, units.tobytes())\nmapped[:20] = units.view(np.uint8)\n"
            "layout_bytes(units, UNIT).data\ndata.view(UNIT)\nunits.tofile(file)\n",
            [1, 2, 5],
        ),
        (
            "arrays_become_bytes_by_a_layout",
            "model/ternmq_model/columns/x.py",
            "data.tobytes()\n",
            [],
        ),
        (
            "only_the_store_has_fallbacks",
            "broker/ternmq_broker/x.py",
            "import os, select\nos.fdatasync(1)\nselect.epoll()\nos.fsync(1)\n",
            [2, 3],
        ),
        (
            "only_the_store_has_fallbacks",
            "store/ternmq_store/x.py",
            "import os\nos.fdatasync(1)\n",
            [],
        ),
        (
            "only_the_output_module_prints",
            "console/ternmq_console/x.py",
            "import sys, json\nfrom click import echo\necho('a')\nprint('a')\n"
            "sys.stdout.buffer.write(b'a')\njson.dumps(1)\nsys.stdout.fileno()\n",
            [3, 4, 5, 6],
        ),
        (
            "only_the_output_module_prints",
            "console/ternmq_console/cli/output.py",
            "import click\nclick.echo('a')\n",
            [],
        ),
        (
            "loops_do_not_swallow_errors",
            "broker/ternmq_broker/x.py",
            "while True:\n    try:\n        f()\n    except Exception as e:\n        log(e)\n"
            "while True:\n    try:\n        f()\n    except Exception as e:\n        raise\n"
            "while True:\n    try:\n        f()\n    except OSError:\n        pass\n",
            [4],
        ),
    ],
)
def test_broken_rule_is_found_at_its_line(
    rule: str, file: str, text: str, lines: list[int]
) -> None:
    named = {candidate.__name__: candidate for candidate in RULES}
    assert lines_broken(named[rule], file, text) == lines


def test_every_rule_has_a_case_that_breaks_it() -> None:
    tested = test_broken_rule_is_found_at_its_line.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {case[0] for case in tested} == {rule.__name__ for rule in RULES}
