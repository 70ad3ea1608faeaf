"""Every Python file of the project against every rule, a folder at a time."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.tidy import call_rules, import_rules, layout_rules, log_rules, shape_rules
from tests.tidy.source import broken
from tools.project import python_files, relative

RULES = (
    *call_rules.RULES,
    *import_rules.RULES,
    *layout_rules.RULES,
    *log_rules.RULES,
    *shape_rules.RULES,
)

BY_FOLDER = defaultdict[str, list[Path]](list)
for path in python_files():
    parts = relative(path).split("/")
    BY_FOLDER["/".join(parts[: 2 if parts[0] == "tests" else 1])].append(path)


@pytest.mark.parametrize("folder", BY_FOLDER)
def test_files_keep_the_rules(folder: str) -> None:
    texts = {relative(path): path.read_text() for path in BY_FOLDER[folder]}
    assert not (found := broken(RULES, texts)), "\n".join(map(str, found))


def test_file_that_is_no_python_is_found() -> None:
    [found] = broken(RULES, {"x.py": "x = 1\nx = = 2\n"})
    assert (found.file, found.line) == ("x.py", 2)
