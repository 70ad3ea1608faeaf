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
    sent = [one for one in read_topic(dev.nameserver, "tables-page") if one.tags == "DL"]
    assert [one.body for one in sent] == [b'{"flight":"882"}']


def test_rows_go_where_their_statement_says_whatever_table_they_are_of(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    fill(dev.nameserver, "tables-from", 2)
    make_topic(dev.nameserver, "tables-to")
    where = f"nameserver '{dev.nameserver}'"
    spark.sql(f"CREATE TABLE read USING ternmq OPTIONS ({where}, subscribe 'tables-from')")
    spark.sql("CREATE TABLE sink (body binary, tags string) USING ternmq")
    spark.sql("CREATE TABLE own (topic string, body binary) USING ternmq")
    full = "tags string, keys array<string>, properties map<string,string>, shardingKey string"
    spark.sql(f"CREATE TABLE full (body string, {full}, delay bigint) USING ternmq")
    given = f"WITH ({where}, topic 'tables-to')"
    values = "'d' AS body, 'd' AS tags, array('k') AS keys, map('p', 'q') AS properties"
    for statement in (
        f"INSERT INTO sink {given} SELECT body, tags FROM read WHERE tags = 'odd'",
        f"INSERT INTO sink {given} (body) SELECT X'FF00'",
        f"INSERT INTO sink {given} BY NAME SELECT 'c' AS tags, X'63' AS body",
        f"INSERT INTO full {given} SELECT {values}, 's' AS shardingKey, 0L AS delay",
        f"INSERT INTO full {given} (body, tags) SELECT body, tags FROM read WHERE tags = 'even'",
        f"INSERT INTO own WITH ({where}) SELECT 'tables-to' AS topic, X'65' AS body",
        f"INSERT INTO own {given} SELECT topic, X'66' AS body FROM read LIMIT 1",
    ):
        spark.sql(statement)
    schema = spark.table("read").select("topic", "body").schema
    rows = spark.createDataFrame([("tables-to", b"g")], schema)
    options = {"nameserver": dev.nameserver}
    rows.writeTo("own").options(**options).append()
    rows.write.format("ternmq").options(**options).mode("append").saveAsTable("own")
    sent = sorted(one.body for one in read_topic(dev.nameserver, "tables-to"))
    evens = [b"message-000000", b"message-000001"]
    assert sent == sorted([*evens, b"\xff\x00", b"c", b"d", b"e", b"f", b"g", b"g"])
    for refused in (
        lambda: spark.sql("INSERT INTO own SELECT topic, body FROM read"),
        lambda: rows.write.insertInto("own"),
        lambda: rows.writeTo("own").append(),
        lambda: rows.write.format("ternmq").mode("append").save(),
    ):
        with pytest.raises(Exception, match=r"no option is given: .* INSERT INTO t WITH"):
            refused()
    assert len(read_topic(dev.nameserver, "tables-from")) == 2


def test_table_is_read_with_more_options_and_as_a_stream_and_a_view(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    fill(dev.nameserver, "tables-read", 5)
    options = f"(NameServer '{dev.nameserver}', SUBSCRIBE 'tables-read')"
    spark.sql(f"CREATE TABLE read USING ternmq OPTIONS {options} TBLPROPERTIES ('a' = 'b')")
    assert spark.sql("SELECT * FROM read WITH (filter 'odd')").count() == 2
    assert spark.read.option("endingTimestamp", "1").table("read").count() == 0
    make_topic(dev.nameserver, "tables-read-2")
    assert spark.sql("SELECT * FROM read WITH (subscribe 'tables-read-2')").count() == 0
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
        (f"CREATE TABLE c USING ternmq {options} AS SELECT * FROM read", "no option is given"),
        (f"CREATE TABLE c USING ternmq {options} LOCATION '/x'", "leave LOCATION out"),
        (f"CREATE TABLE c USING ternmq OPTIONS ({where})", "one of the options subscribe"),
        (f"CREATE TABLE c USING ternmq OPTIONS ({where}, topic 'x')", "INSERT INTO t WITH"),
        (f"CREATE TABLE c USING ternmq OPTIONS ({where}, subscripe 'x')", "mean 'subscribe'"),
    ):
        with pytest.raises(Exception, match=told):
            spark.sql(statement).collect()
    assert spark.sql(f"SELECT * FROM own WITH ({where}, subscribe 'tables-source')").count() == 1
    assert read_topic(dev.nameserver, "tables-left") == []
    assert len(read_topic(dev.nameserver, "tables-source")) == 1
