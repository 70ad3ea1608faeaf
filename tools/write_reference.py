"""Write the tables of `docs/reference/config.md` from the classes of settings: `make reference`."""

from pathlib import Path
from typing import Final

from ternmq_console.services.commands import SECTIONS
from ternmq_runtime.settings.reference import settings_table
from tools.project import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "config.md"
MARKER: Final = "<!-- Written by `make reference`; a change belongs into the classes. -->\n"
"""Below it everything is generated."""


def page_with_tables(page: str) -> str:
    """Return `page` with the tables below its marker as the classes have them now."""
    text, marker, _ = page.partition(MARKER)
    assert marker, "the page has no marker"
    return f"{text}{marker}\n{settings_table(SECTIONS)}"


def main(page: Path = PAGE) -> None:
    """Renew the page."""
    page.write_text(page_with_tables(page.read_text()))


if __name__ == "__main__":
    main()
