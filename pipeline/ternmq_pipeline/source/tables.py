"""Tables of SQL: `CREATE TABLE … USING ternmq OPTIONS (…)`. Pure.

Spark 4.3 hands a Python source the options of a table once, at CREATE TABLE, when it asks for the
columns; it reads the table, and inserts into it, with the columns alone. So the options are put
into the metadata of the first column, which Spark keeps with the table and hands back.
"""

import json
from collections.abc import Mapping, Sequence
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
from ternmq_pipeline.options import read_options, write_options
from ternmq_pipeline.options.given import is_of_spark
from ternmq_pipeline.options.topics import TOPIC_OPTIONS
from ternmq_pipeline.schema import Column
from ternmq_pipeline.sink import columns as sink
from ternmq_pipeline.source.asked_schema import columns_offered
from ternmq_pipeline.strict_json import shown

OPTIONS: Final = "ternmq.options"
"""The metadata's name: a JSON object of options."""

_OF_TABLE: Final = "option."
"""Begins the options at CREATE TABLE; beside them are Spark's own and the table's properties."""

_READING: Final = frozenset(name.lower() for name in (*TOPIC_OPTIONS, "store"))
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

_INSERTED: Final[Sequence[Column]] = (
    Column(sink.BODY, "string"),
    Column(sink.TAGS, "string"),
    Column(sink.KEYS, "array<string>"),
    Column(sink.PROPERTIES, "map<string,string>"),
    Column(sink.SHARDING_KEY, "string"),
    Column(sink.DELAY, "bigint"),
)
"""Of a table that is inserted into. Spark takes binary for a string column, never the reverse, and
hands its bytes on as they are."""

NO_OPTIONS: Final = (
    "no option is given. Of a table that was created with columns, AS SELECT or by saveAsTable, "
    "Spark hands a Python source no options: create it without columns, or give them each time: "
    "FROM t WITH (nameserver '…', subscribe '…'), INSERT INTO t WITH (nameserver '…', topic '…')"
)


def created_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a CREATE TABLE, None when something else asks for the columns.

    Raises:
        ConfigError: The table has a LOCATION.
    """
    if "provider" not in options:
        return None
    if "location" in options:
        rule = "a table of topics has no path: leave LOCATION out"
        raise ConfigError("location", shown(options["location"]), rule)
    return {
        name.removeprefix(_OF_TABLE): text
        for name, text in options.items()
        if name.startswith(_OF_TABLE)
    }


def table_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a table with these options: the source's, or the sink's.

    Raises:
        UsageError: An option is refused, or they neither say what is read nor where rows go.
    """
    reads = _READING & options.keys()
    if sink.TOPIC in options and reads:
        raise UsageError(
            f"options topic and {min(reads)}: a table is read or it is inserted into: "
            "create one for each"
        )
    if sink.TOPIC in options:
        write_options(options)
        columns = _INSERTED
    elif reads:
        columns = columns_offered(read_options(options))
    else:
        raise UsageError(
            f"a table needs one of the options {', '.join(TOPIC_OPTIONS)}, store to be read, "
            "or topic to be inserted into"
        )
    fields = [StructField(column.name, _PLAIN[column.type_text]) for column in columns]
    fields[0].metadata = {OPTIONS: json.dumps(dict(options), sort_keys=True)}
    return StructType(fields)


def reading_options(given: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """Return the options of a read: those given, with the table's whose columns are read.

    Options that say what is read are complete: nothing of a table is added to them.

    Raises:
        UsageError: There is none.
    """
    told = _told(given)
    if _READING & told.keys():
        return told
    kept = _kept(schema)
    if not kept and not told:
        raise UsageError(NO_OPTIONS)
    return kept | told


def writing_options(given: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """Return the options of a write: those given, with the table's that is inserted into.

    A frame keeps the metadata of the table that it was read from: that does not count here.

    Raises:
        UsageError: There is none.
    """
    told, kept = _told(given), _kept(schema)
    if kept and not _READING & kept.keys():
        return kept | told
    if told:
        return told
    if kept:
        raise UsageError(
            "no option is given, and the rows are of a table that is read: insert into a table "
            "that was created with the option topic"
        )
    raise UsageError(NO_OPTIONS)


def _told(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in given.items() if not is_of_spark(name)}


def _kept(schema: StructType) -> dict[str, str]:
    for field in schema.fields:
        if OPTIONS in (field.metadata or {}):
            found: dict[str, str] = json.loads(field.metadata[OPTIONS])
            return found
    return {}
