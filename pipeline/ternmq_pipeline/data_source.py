"""Entry points of Spark to the data source `ternmq`.

Spark creates the data source in a process of its own for each plan and pickles it. So this module
opens no connection and no file, and each method imports the modules that only it needs.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.source_options import read_options
from ternmq_pipeline.short_errors import short_errors
from ternmq_pipeline.source.schema import available_columns, ddl_of
from ternmq_pipeline.source.sql_tables import (
    created_table,
    reading_options,
    table_schema,
    writing_options,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


@short_errors
class TernmqDataSource(DataSource):
    """Topics as tables and streams. Spark finds it by the package `pyspark_ternmq`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "ternmq"

    def schema(self) -> "StructType | str":
        """Return the columns of a read without a schema from the user, or of a new table.

        Raises:
            UsageError: An option is refused. The error names the option.
        """
        table = created_table(self.options)
        if table is not None:
            return table_schema(table)
        return ddl_of(available_columns(read_options(self.options)))

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Return the reader that plans and reads a batch.

        Raises:
            UsageError: An option or a column of the schema is refused. The error names it.
        """
        from ternmq_pipeline.source.batch_reader import batch_reader

        options = reading_options(self.options, schema)
        return batch_reader(read_options(options, streaming=False), schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        """Return the reader of a stream. A refused option or column fails its first method."""
        from ternmq_pipeline.source.streams.reader import RefusedStreamReader, TernmqStreamReader

        try:
            options = reading_options(self.options, schema)
            return TernmqStreamReader(read_options(options, streaming=True), schema)
        except UsageError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        """Return the writer of a batch.

        Raises:
            UsageError: An option or a column of the frame is refused. The error names it.
        """
        from ternmq_pipeline.sink.writer import batch_writer

        return batch_writer(writing_options(self.options), schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":
        """Return the writer of a stream's batches.

        Raises:
            UsageError: An option or a column of the frame is refused. The error names it.
        """
        from ternmq_pipeline.sink.writer import stream_writer

        return stream_writer(writing_options(self.options), schema, overwrite)
