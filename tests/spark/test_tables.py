"""Topics as tables of SQL."""

from collections.abc import Generator

import pytest
from pyspark.sql import SparkSession

from tests.support.pages import example
from tests.support.processes import ServiceProcess
from tests.support.spark_data import fill, make_topic
from tests.support.spark_sink import read_topic


@pytest.fixture(autouse=True)
def no_table_stays(spark: SparkSession) -> Generator[None]:
    """Drop the tables of a test."""
    yield
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")


def test_example_of_the_page_reads_and_inserts(spark: SparkSession, dev: ServiceProcess) -> None:
    fill(dev.nameserver, "tables-page", 4)
    text = example("howto/spark.md", "Tables in SQL", "sql")
    text = text.replace("127.0.0.1:9876", dev.nameserver).replace("'flights'", "'tables-page'")
    results = [spark.sql(one).collect() for one in text.strip().rstrip(";").split(";\n")]
    assert sorted((row[0], row[1]) for row in results[1]) == [("even", 2), ("odd", 2)]
    (sent,) = [one for one in read_topic(dev.nameserver, "tables-page") if one.tags == "DL"]
    assert (sent.body, list(sent.keys)) == (b'{"flight":"882"}', ["882"])
    spark.sql("INSERT INTO flights_out (body) SELECT X'FF00FE'")
    assert spark.table("flights").where("body = X'FF00FE'").count() == 1
    spark.sql("SELECT 'b' AS tags, 'a' AS body").write.format("ternmq").mode("append").saveAsTable(
        "flights_out"
    )
    assert spark.table("flights").where("tags = 'b' AND string(body) = 'a'").count() == 1


def test_table_is_read_with_more_options_and_as_a_stream_and_a_view(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    fill(dev.nameserver, "tables-read", 5)
    options = f"(NameServer '{dev.nameserver}', SUBSCRIBE 'tables-read')"
    spark.sql(f"CREATE TABLE read USING ternmq OPTIONS {options} TBLPROPERTIES ('a' = 'b')")
    assert spark.sql("SELECT * FROM read WITH (filter 'odd')").count() == 2
    assert spark.read.option("endingTimestamp", "1").table("read").count() == 0
    stream = spark.readStream.option("startingOffsets", "earliest").table("read")
    writer = stream.writeStream.format("memory").queryName("tables_seen")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("tables_seen").count() == 5
    spark.sql(f"CREATE TEMPORARY VIEW seen USING ternmq OPTIONS {options}")
    assert spark.table("seen").count() == 5
    found = spark.catalog.createTable(
        "made", source="ternmq", nameserver=dev.nameserver, subscribe="tables-read"
    )
    assert found.count() == 5


def test_table_whose_options_spark_drops_is_refused_and_told_what_to_write(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    make_topic(dev.nameserver, "tables-left")
    fill(dev.nameserver, "tables-source", 1)
    where = f"nameserver '{dev.nameserver}'"
    options = f"OPTIONS ({where}, subscribe 'tables-left')"
    spark.sql(f"CREATE TABLE own (body binary) USING ternmq {options}")
    spark.sql(f"CREATE TABLE read USING ternmq OPTIONS ({where}, subscribe 'tables-source')")
    for statement, told in (
        ("SELECT * FROM own", r"FROM t WITH \(nameserver"),
        ("INSERT INTO own SELECT X'00'", r"INSERT INTO t WITH \(nameserver"),
        ("INSERT INTO read (body) SELECT X'00'", "created with the option topic"),
        (f"CREATE TABLE c USING ternmq {options} AS SELECT * FROM read", "no option is given"),
        (f"CREATE TABLE c USING ternmq {options} LOCATION '/x'", "leave LOCATION out"),
        (f"CREATE TABLE c USING ternmq OPTIONS ({where})", "needs one of the options"),
    ):
        with pytest.raises(Exception, match=told):
            spark.sql(statement).collect()
    assert spark.sql(f"SELECT * FROM own WITH ({where}, subscribe 'tables-source')").count() == 1
    assert read_topic(dev.nameserver, "tables-left") == []
    assert len(read_topic(dev.nameserver, "tables-source")) == 1
