from dataclasses import dataclass, field
from pathlib import Path

from ternmq_runtime.settings.reference import SettingDescription, describe, settings_table


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """What all services have."""

    listen: str = "127.0.0.1"
    """Address to listen on: `0.0.0.0` | `::` for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Store(Base):
    """Where things lie."""

    root: Path
    """Directory of the store.

    Made if it is not there.
    """

    file_bytes: int = 1 << 30
    """Size of one file."""

    hosts: tuple[str, ...] = field(default_factory=lambda: ("a", "b"))
    undocumented: bool = False
    remark: str = ""
    """Shown to others."""

    computed: int = field(default=0, init=False)
    """Not a setting."""


def test_every_setting_is_described_by_the_words_below_its_field() -> None:
    described = {one.name: one for one in describe({"store": Store})}
    assert list(described) == [
        "store.listen",
        "store.root",
        "store.file_bytes",
        "store.hosts",
        "store.undocumented",
        "store.remark",
    ]
    assert described["store.root"] == SettingDescription(
        name="store.root",
        kind="a path",
        default="required",
        doc="Directory of the store. Made if it is not there.",
    )
    assert described["store.file_bytes"].default == "1GiB"
    assert described["store.hosts"].default == "a,b"
    assert described["store.undocumented"].doc == ""


def test_empty_default_is_shown_in_a_word() -> None:
    assert "| `store.remark` | text | empty | Shown to others. |" in settings_table(
        {"store": Store}
    )


def test_table_is_markdown_with_a_heading_per_section() -> None:
    table = settings_table({"base": Base, "other": Base})
    assert table == (
        "## base\n\n"
        "| setting | value | default | meaning |\n"
        "|---|---|---|---|\n"
        "| `base.listen` | text | `127.0.0.1` | Address to listen on: `0.0.0.0` \\| `::` for all. |"
        "\n\n"
        "## other\n\n"
        "| setting | value | default | meaning |\n"
        "|---|---|---|---|\n"
        "| `other.listen` | text | `127.0.0.1` | Address to listen on: `0.0.0.0` \\| `::` for all."
        " |\n"
    )
