"""What every file of contracts must tell its readers."""

import re
from collections.abc import Iterator
from typing import Final

from tests.tidy.source import Violation

_DECLARATION: Final = re.compile(
    r"\s*(?:(?:service|message|enum|rpc) (?P<kind>\w+)|(?:[\w.<>, ]+ )?(?P<member>\w+) = \d+;)"
)


def uncommented(file: str, text: str) -> Iterator[Violation]:
    """Find services, RPCs, messages, fields, enums and their values without a comment above."""
    above = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if (found := _DECLARATION.match(line)) and not above.lstrip().startswith("//"):
            yield Violation(file, number, f"{found['kind'] or found['member']} has no comment")
        above = line
