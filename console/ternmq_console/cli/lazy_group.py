"""Groups that import a command when it runs, so `--help` does not import gRPC and numpy."""

import gc
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from ternmq_console.cli.output import make_output_visible
from ternmq_model.printable_text import printable

NOBODY_READS: Final = 128 + 13
"""Exit code in a shell of a process that SIGPIPE ended."""


class LazyGroup(click.Group):
    """Group of commands, each with its name and one line of help.

    Args:
        lazy: `.module:attribute` and line in the group's help of each command, by name.
        hidden: `.module:function` that returns commands without a line in the help; empty = none.
    """

    def __init__(
        self, *, name: str, help: str, lazy: Mapping[str, tuple[str, str]], hidden: str = ""
    ) -> None:
        super().__init__(name=name, help=help, no_args_is_help=True)
        self._lazy = dict(lazy)
        self._hidden = hidden

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in self._lazy:
            command = _attribute(self._hidden)(cmd_name) if self._hidden else None
            assert command is None or isinstance(command, click.Command)
            return command
        command = _attribute(self._lazy[cmd_name][0])
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with `incomplete`; import no command."""
        commands = [
            CompletionItem(name, help=text)
            for name, (_, text) in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line; standard output and error show unprintable characters as escapes."""
        make_output_visible()
        return super().main(*args, **extra)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the words of a command line; a usage error is printed in one line."""
        with _errors_in_one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit without an error line when the reader of the output has gone."""
        try:
            with _errors_in_one_line():
                return super().invoke(ctx)
        except BrokenPipeError:
            # The rest of the buffer would fail again when it is flushed at exit.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            raise SystemExit(NOBODY_READS) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; import none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])


@add_completion_class
class _Bash(BashComplete):
    """Completion for bash, which passes `--option=value` as three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        return [word for word in words if word != "="], incomplete


class _WholeWords(ShellComplete):
    """Completion of `--option=value` for shells that replace the whole word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        option, separator, _ = incomplete.partition("=")
        found = super().get_completions(args, incomplete)
        if separator and option.startswith("--"):
            for each in found:
                each.value = f"{option}={each.value}"
        return found


@add_completion_class
class _Zsh(_WholeWords, ZshComplete):
    pass


@add_completion_class
class _Fish(_WholeWords, FishComplete):
    pass


@contextmanager
def _errors_in_one_line() -> Generator[None]:
    """Escape line ends in the message of an error of click, which may quote arguments."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = printable(error.message)  # which click declares final
        raise


def _attribute(place: str) -> Any:
    module, _, attribute = place.partition(":")
    gc.disable()  # Nearly all objects of an import stay: nothing to collect.
    try:
        return getattr(import_module(module, "ternmq_console"), attribute)
    finally:
        gc.enable()
