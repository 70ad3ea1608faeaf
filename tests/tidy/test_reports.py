import re

import click
import pytest

from ternmq_console.main import ternmq
from tests.tidy.text_rules import linked_pages
from tools.project import ROOT

ISSUES = ROOT / ".github" / "ISSUE_TEMPLATE"
PAGES = ("SECURITY.md", ".github/ISSUE_TEMPLATE/bug.md", ".github/ISSUE_TEMPLATE/feature.md")


def unknown_commands(text: str) -> list[str]:
    """Return the commands `ternmq VERB …` in a text that do not exist."""
    found: list[str] = []
    for words in re.findall(r"(?:^|`)ternmq ([a-z][a-z -]*[a-z])", text, re.MULTILINE):
        command: click.Command | None = ternmq
        for word in words.split():
            if isinstance(command, click.Group):
                command = command.get_command(click.Context(command), word)
        if command is None:
            found.append(words)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_report_exist(page: str) -> None:
    assert not unknown_commands((ROOT / page).read_text())


def test_unknown_command_of_a_report_is_found() -> None:
    text = "ternmq store check DIR\nternmq store mend DIR\n`ternmq shout`, `ternmq --version`\n"
    assert unknown_commands(text) == ["store mend", "shout"]


@pytest.mark.parametrize("template", ["bug", "feature"])
def test_issue_template_has_name_and_description(template: str) -> None:
    # Without them GitHub does not offer a template.
    text = (ISSUES / f"{template}.md").read_text()
    assert re.match(r"---\nname: \S.*\nabout: \S.*\n(labels: .*\n)?---\n\n", text)


def test_bug_template_asks_for_what_a_diagnosis_needs() -> None:
    text = (ISSUES / "bug.md").read_text()
    commands = ("--version", "cluster list", "cluster status", "broker status", "store check DIR")
    assert all(f"\nternmq {command}\n" in text for command in commands)
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert {"How to repeat it", "Versions", "Cluster", "Logs", "Store check"} <= set(headings)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_security_page_is_linked(page: str) -> None:
    assert "SECURITY.md" in linked_pages(ROOT, page)
