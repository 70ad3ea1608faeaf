"""Examples of the documentation, for tests that run them."""

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"


def example(page: str, heading: str, language: str) -> str:
    """Return the first example in a language below a heading of a page of `docs/`."""
    below = (DOCS / page).read_text("utf-8").partition(f"# {heading}\n")[2]
    found = re.search(rf"```{language}\n(.*?)```", below, re.DOTALL)
    assert found is not None, f"{page} has such an example below {heading!r}"
    return found[1]
