"""`ternmq` verbs run in the process of the test: no imports to wait for, and the same exit codes.

Tests of what only a process of its own has (signals, pipes that close, what is on standard error
when nobody configured logging) start `TERNMQ` of `tests/support/processes.py`.
"""

import json
from typing import Any, Final

from click.testing import CliRunner, Result

from ternmq_console.main import ternmq
from tests.support.processes import run_ternmq

_STREAMING: Final = {"produce", "consume"}
"""Verbs that read the descriptor of standard input, or may wait forever: run as processes."""


def invoke(*words: str, stdin: str = "") -> Result:
    """Run a verb that asks and answers; what is no exit of its own is raised."""
    assert words[0] not in _STREAMING
    return CliRunner().invoke(ternmq, words, input=stdin, catch_exceptions=False)


def text_of(*words: str, stdin: str = "") -> str:
    """Run a verb to its end, which has to be a good one, and return what it prints."""
    if words[0] in _STREAMING:
        return run_ternmq(*words, stdin=stdin)
    done = invoke(*words, stdin=stdin)
    assert done.exit_code == 0, (words, done.stderr)
    return done.stdout


def json_of(*words: str, stdin: str = "") -> Any:
    """Run a verb to its end, which has to be a good one, and return what it found."""
    return json.loads(text_of(*words, "--json", stdin=stdin))
