"""Tables of SQL for reads: `CREATE TABLE … USING ternmq OPTIONS (…)`. Pure.

Spark 4.3 gives a Python source the options of a table once, at CREATE TABLE, when it asks for the
columns. Later it reads the table with the columns only. So the metadata of the first column holds
the options: Spark stores it with the table and returns it.

Metadata follows rows everywhere, so it never decides the target of a write.
"""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ternmq_model.errors import ConfigError, UsageError
from ternmq_pipeline.options.option_map import is_of_spark
from ternmq_pipeline.options.positions import ENDING, STARTING
from ternmq_pipeline.options.source_options import read_options
from ternmq_pipeline.options.topics import TOPIC_OPTIONS
from ternmq_pipeline.source.schema import available_columns
from ternmq_pipeline.strict_json import shown

OPTIONS: Final = "ternmq.options"
"""Key of the metadata. Its value is a JSON object of options."""

_OF_TABLE: Final = "option."
"""Prefix of the options at CREATE TABLE, beside Spark's own and the table's properties."""

_INSTEAD: Final = tuple(
    frozenset(name.lower() for name in names)
    for names in ((*TOPIC_OPTIONS, "store"), STARTING, ENDING)
)
"""Sets of options: a given option replaces all options of its set in a table."""

_TEXT: Final = StringType()
_PLAIN: Final[Mapping[str, DataType]] = {
    "string": _TEXT,
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(_TEXT),
    "map<string,string>": MapType(_TEXT, _TEXT),
    "array<struct<key:string,value:binary>>": ArrayType(
        StructType([StructField("key", _TEXT), StructField("value", BinaryType())])
    ),
}
"""Types by their texts. Spark's own parser needs a session, and workers have none."""

_NO_READ_OPTION: Final = (
    'no option is given: set .option("nameserver", "HOST:PORT") and '
    '.option("subscribe", "TOPIC"); in SQL, if the table was created with columns, AS SELECT '
    "or by saveAsTable (Spark hands its options to no Python source), use "
    "FROM t WITH (nameserver '…', subscribe '…')"
)
_NO_WRITE_OPTION: Final = (
    'no option is given: set .option("nameserver", "HOST:PORT") and '
    '.option("topic", "TOPIC"); in SQL, regardless of the options of its table, use '
    "INSERT INTO t WITH (nameserver '…', topic '…')"
)
_SINK_TABLE: Final = (
    "a table with options is for reading: to insert into a topic, create it with columns and "
    "without options, such as CREATE TABLE t (body STRING, tags STRING) USING ternmq, and use "
    "INSERT INTO t WITH (nameserver '…', topic '…')"
)


def created_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a CREATE TABLE; None for any other request for columns.

    Raises:
        ConfigError: The table has a LOCATION.
    """
    is_of_table = "owner" in options or any(name.startswith(_OF_TABLE) for name in options)
    if "provider" not in options or not is_of_table:
        return None  # of a read, `provider` is an option of the user
    if "location" in options:
        rule = "a table of topics has no path: leave LOCATION out"
        raise ConfigError("location", shown(options["location"]), rule)
    return {
        name.removeprefix(_OF_TABLE): text
        for name, text in options.items()
        if name.startswith(_OF_TABLE)
    }


def table_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a table. Their metadata holds the options.

    Raises:
        UsageError: An option is refused, or no option names a topic or store.
    """
    if "topic" in options:
        raise ConfigError("topic", shown(options["topic"]), _SINK_TABLE)
    columns = available_columns(read_options(options))
    fields = [StructField(column.name, _PLAIN[column.type_text]) for column in columns]
    fields[0].metadata = {OPTIONS: json.dumps(dict(options), sort_keys=True)}
    return StructType(fields)


def reading_options(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """Return the options of a read: the given ones, completed by those of the table.

    Raises:
        UsageError: There is no option.
    """
    own_options, table_options = _lower_names(options), _table_options(schema)
    if not table_options and not own_options:
        raise UsageError(_NO_READ_OPTION)
    superseded = frozenset[str]().union(
        *(names for names in _INSTEAD if names & own_options.keys())
    )
    return {
        name: text for name, text in table_options.items() if name not in superseded
    } | own_options


def writing_options(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the given options of a write. Options of tables are ignored.

    Raises:
        UsageError: There is no option.
    """
    own_options = _lower_names(options)
    if not own_options:
        raise UsageError(_NO_WRITE_OPTION)
    return own_options


def _lower_names(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in options.items() if not is_of_spark(name)}


def _table_options(schema: StructType) -> dict[str, str]:
    for field in schema.fields:
        if OPTIONS in (field.metadata or {}):
            found: dict[str, str] = json.loads(field.metadata[OPTIONS])
            return found
    return {}
