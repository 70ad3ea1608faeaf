"""Settings of a process: dataclasses, filled from defaults < TOML < environment < flags.

A section is a frozen dataclass. Its fields are the settings, each with a docstring below it; the
name of a setting is `section.field`. One run finds all unknown and wrong settings, so that an
operator corrects a deployment once.
"""

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from ternmq_model.errors import ConfigError, SettingsError
from ternmq_runtime.settings.values import parse_value

T = TypeVar("T")

ENVIRONMENT_PREFIX = "TERNMQ_"

CONFIG_VARIABLE = "TERNMQ_CONFIG"
"""Variable with the path of the TOML file, if no argument names it."""

_RESERVED = frozenset({CONFIG_VARIABLE})

_RESEMBLES = 0.9
"""Least similarity of a variable to a setting's variable for a typing error. Kubernetes adds
variables of services to every container, such as TERNMQ_BROKER_SERVICE_PORT for `ternmq-broker`."""

_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)
"""Begin of the value of Kubernetes' TERNMQ_BROKER_PORT, whose name resembles a setting."""


class LoadedSettings:
    """Checked sections of one process. Immutable.

    Attributes:
        origins: Source of each setting without its default value, by name.
    """

    def __init__(self, sections: Mapping[type, object], origins: Mapping[str, str]) -> None:
        self._sections = dict(sections)
        self.origins = dict(origins)

    def __getitem__(self, kind: type[T]) -> T:
        """Return the loaded section of class `kind`."""
        section = self._sections[kind]
        assert isinstance(section, kind)
        return section


@dataclass(frozen=True, slots=True)
class _RawSetting:
    """Setting in the operator's form: `raw` is text or a TOML value."""

    setting: str
    raw: object
    origin: str

    def problem(self, rule: str) -> str:
        return f"{self.setting}={self.raw!r}: {rule} ({self.origin})"


def load_settings(
    sections: Mapping[str, type],
    *,
    toml_path: Path | None = None,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
    reserved: Collection[str] = (),
) -> LoadedSettings:
    """Build every section from the operator's settings, or report all mistakes.

    Args:
        sections: Dataclasses by the names of their sections.
        toml_path: File with a table for each section; None = the file of the variable
            TERNMQ_CONFIG, if any.
        environ: Variables such as TERNMQ_BROKER__FLUSH_MODE=async. Others are ignored, except a
            TERNMQ_ variable without the two underscores that resembles a setting's.
        flags: Values of `--set`: `broker.flush_mode=async`. The last one of a name counts.
        reserved: Further TERNMQ_ variables that are no settings.

    Raises:
        SettingsError: The file or settings are unknown or wrong. The error names all of them.
    """
    types_by_setting = {
        f"{section}.{name}": hint
        for section, kind in sections.items()
        for name, hint in _field_types(kind).items()
    }
    problems: list[str] = []
    if toml_path is None and environ.get(CONFIG_VARIABLE):
        toml_path = Path(environ[CONFIG_VARIABLE])
    given = [] if toml_path is None else _from_toml(toml_path, problems)
    given += _from_environ(environ, _RESERVED.union(reserved), types_by_setting, problems)
    given += _from_flags(flags, problems)

    values: dict[str, object] = {}
    winners: dict[str, _RawSetting] = {}
    bad: set[str] = set()
    for one in given:
        if one.setting not in types_by_setting:
            problems.append(one.problem(_unknown(one.setting, types_by_setting)))
            continue
        field = one.setting.partition(".")[2]
        try:
            values[one.setting] = parse_value(one.raw, types_by_setting[one.setting], field)
            winners[one.setting] = one
        except ValueError as error:
            problems.append(one.problem(str(error)))
            bad.add(one.setting)
            values.pop(one.setting, None)

    built: dict[type, object] = {}
    for section, kind in sections.items():
        built[kind] = _build(section, kind, values, winners, bad, problems)
    if problems:
        raise SettingsError(problems)
    return LoadedSettings(built, {setting: one.origin for setting, one in winners.items()})


def _field_types(kind: type) -> dict[str, object]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in _fields(kind)}


def _fields(kind: type) -> Iterator[dataclasses.Field[Any]]:
    assert dataclasses.is_dataclass(kind), "a section is a dataclass"
    return (field for field in dataclasses.fields(kind) if field.init)


def _build(
    section: str,
    kind: type,
    values: Mapping[str, object],
    winners: Mapping[str, _RawSetting],
    bad: Collection[str],
    problems: list[str],
) -> object | None:
    """Return the section; None = `problems` has its mistakes.

    A class reports its first mistake only. So each refused setting gets its default, and the others
    are tried again.
    """
    arguments: dict[str, object] = {}
    required: set[str] = set()
    for field in _fields(kind):
        setting = f"{section}.{field.name}"
        if field.default is MISSING and field.default_factory is MISSING:
            required.add(setting)
            if setting not in values and setting not in bad:
                problems.append(f"{setting}: must be set, it has no default")
        if setting in values:
            arguments[field.name] = values[setting]
    is_as_given = not any(setting.startswith(f"{section}.") for setting in bad)
    while all(setting.partition(".")[2] in arguments for setting in required):
        try:
            return cast("object", kind(**arguments))
        except ConfigError as error:
            setting = error.setting if "." in error.setting else f"{section}.{error.setting}"
            field_name = setting.partition(".")[2]
            was_given = field_name in arguments
            arguments.pop(field_name, None)
            # A default may fail too, after a value that it depends on got its default.
            if was_given or is_as_given:
                origin = winners[setting].origin if setting in winners else "default"
                problems.append(f"{setting}={error.value!r}: {error.rule} ({origin})")
            if not was_given:
                return None
            is_as_given = False
    return None


def _from_toml(path: Path, problems: list[str]) -> list[_RawSetting]:
    origin = f"file {path}"
    try:
        with path.open("rb") as file:
            document: dict[str, object] = tomllib.load(file)
    except OSError as error:
        problems.append(f"{origin}: cannot be read: {error.strerror}")
        return []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{origin}: is not TOML: {error}")
        return []
    given: list[_RawSetting] = []
    for section, table in document.items():
        if isinstance(table, dict):
            settings = cast("dict[str, object]", table)
            given += [
                _RawSetting(f"{section}.{name}", raw, origin) for name, raw in settings.items()
            ]
        else:
            given.append(_RawSetting(section, table, origin))
    return given


def _from_environ(
    environ: Mapping[str, str],
    reserved: Collection[str],
    known: Collection[str],
    problems: list[str],
) -> list[_RawSetting]:
    known_variables = {_variable(setting): setting for setting in known}
    given: list[_RawSetting] = []
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in reserved:
            continue
        raw = environ[variable]
        if variable in known_variables:
            given.append(_RawSetting(known_variables[variable], raw, f"environment {variable}"))
        elif "__" in variable or _is_slip(variable, raw, [*known_variables, *reserved]):
            rule = _unknown(variable, [*known_variables, *reserved])
            problems.append(f"{variable}={raw!r}: {rule} (environment)")
    return given


def _is_slip(variable: str, raw: str, known: Collection[str]) -> bool:
    """Return whether a variable resembles a setting. Other programs may use TERNMQ_ too."""
    if _SERVICE_LINK.match(raw):
        return False
    without_section = "__" + variable.removeprefix(ENVIRONMENT_PREFIX)
    return any(one.endswith(without_section) for one in known) or bool(
        difflib.get_close_matches(variable, known, n=1, cutoff=_RESEMBLES)
    )


def _variable(setting: str) -> str:
    return ENVIRONMENT_PREFIX + setting.replace(".", "__").upper()


def _from_flags(flags: Sequence[str], problems: list[str]) -> list[_RawSetting]:
    given: list[_RawSetting] = []
    for flag in flags:
        setting, equals, raw = flag.partition("=")
        if equals:
            given.append(_RawSetting(setting.strip(), raw, "flag --set"))
        else:
            problems.append(f"--set {flag!r}: must be section.name=value")
    return given


def _unknown(name: str, known: Collection[str]) -> str:
    """Return the rule that `name` is unknown, with the most similar known name."""
    spelt = name if name.startswith(ENVIRONMENT_PREFIX) else name.lower().replace("-", "_")
    last_part = spelt.rpartition(".")[2].rpartition("__")[2]
    matches = difflib.get_close_matches(spelt, known, n=1, cutoff=0.75)
    matches = matches or [one for one in known if one.endswith((f".{last_part}", f"__{last_part}"))]
    matches = matches or difflib.get_close_matches(spelt, known, n=1, cutoff=0.6)
    return "no such setting" + (f"; did you mean {matches[0]!r}?" if matches else "")
