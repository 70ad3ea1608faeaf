"""Check the messages of the commits since the last release: `make commits`.

A title is imperative and short, and a body explains each commit that changes more than a few
lines. Merge commits are exempt.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.project import GENERATED, ROOT, relative

BASELINE: Final = "7d48251cea674ecca7bf64523d46afee0c43e0d8"
"""The last commit before these rules. Commits are checked from here until a release is tagged."""

TITLE_CHARACTERS_MAX: Final = 72
LINES_WITHOUT_BODY_MAX: Final = 10

FIRST_WORD: Final = re.compile(r"(?:[\w./-]+(?:, ?[\w./-]+)*: )?(?P<word>[\w'-]*)")
NOT_IMPERATIVE: Final = re.compile(
    r"""
    (?! (?: bleed|breed|embed|exceed|feed|heed|need|proceed|seed|shed|shred|speed|succeed|weed
        | bring|cling|fling|ping|ring|sling|spring|sting|string|swing|wring
        | alias|bias|canvas|focus ) $ )
    (?: [\w'-]* (?: ed | ing | (?<!s)s )
    | became|began|broke|brought|built|came|caught|chose|did|drew|fell|felt|found|gave|got|had
    | held|kept|knew|left|lost|made|meant|met|paid|ran|said|saw|sent|stood|threw|told|took|was
    | went|were|wrote
    | an?|it|no|that|the|this|what|when|who|fixup|wip | ) $
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Past tenses, forms in -ing and -s, and words that begin no imperative sentence."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit that is no merge."""

    name: str
    title: str
    body: str
    """Without trailers such as `Signed-off-by:`."""

    lines: int
    """Added and removed, without those of generated code."""


def problems(commit: Commit) -> Iterator[str]:
    """Find the rules that the message of `commit` breaks."""
    if (length := len(commit.title)) > TITLE_CHARACTERS_MAX:
        yield f"the title has {length} characters, at most {TITLE_CHARACTERS_MAX} are allowed"
    found = FIRST_WORD.match(commit.title)
    word = found["word"] if found else ""
    if NOT_IMPERATIVE.match(word):
        yield f"the title begins with {word!r}, which is no imperative such as 'Add' or 'Keep'"
    if commit.lines > LINES_WITHOUT_BODY_MAX and not commit.body:
        yield f"{commit.lines} lines change and no body says why"


def parse(log: str) -> Iterator[Commit]:
    """Yield the commits of a log that `read_log` has read."""
    generated = relative(GENERATED)
    for record in log.split("\1")[1:]:
        name, title, body, trailers, stat = record.split("\0")
        # Each line is added, removed and path; both numbers are "-" for a binary file.
        changes = [line.split("\t") for line in stat.splitlines() if line]
        lines = sum(
            int(number)
            for *numbers, path in changes
            if not path.startswith(generated)
            for number in numbers
            if number != "-"
        )
        yield Commit(name, title, body.strip().removesuffix(trailers.strip()).strip(), lines)


def read_log(root: Path) -> str:
    """Return the log of `root` since its last release, as `parse` takes it.

    Raises:
        OSError: git is not installed.
        subprocess.CalledProcessError: The history lacks the last release and the baseline.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        done = subprocess.run(command, capture_output=True, check=True, text=True, errors="replace")
        return done.stdout.strip()

    try:
        base = git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*")
    except subprocess.CalledProcessError:
        base = BASELINE
    git("merge-base", "--is-ancestor", base, "HEAD")
    form = "--format=%x01%h%x00%s%x00%b%x00%(trailers)%x00"
    return git("log", "--no-merges", "--numstat", form, f"{base}..HEAD")


def main(root: Path = ROOT) -> int:
    """Print what is wrong; a whole history that lacks the base is an error where `CI=true`."""
    # An unpacked archive may lie inside another repository, whose history is not checked.
    if not (root / ".git").exists():
        print("commits: not checked, because this is no git checkout")
        return 0
    try:
        log = read_log(root)
    except (OSError, subprocess.CalledProcessError) as error:
        stderr = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        reason = stderr.strip() or "HEAD does not descend from the baseline"
        print(f"commits: not checked, fetch the whole history first: {reason}", file=sys.stderr)
        is_shallow = (root / ".git" / "shallow").exists()
        return 1 if os.environ.get("CI") == "true" and not is_shallow else 0
    commits = list(parse(log))
    found = [f"{commit.name} {problem}" for commit in commits for problem in problems(commit)]
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    print(f"commits: {len(commits)} checked, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
