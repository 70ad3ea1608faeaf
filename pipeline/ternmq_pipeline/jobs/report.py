"""Report of a cluster: topics, groups, consumers, dead letters and traffic by the hour.

made = report("127.0.0.1:9876", html="report.html", parquet="report/")
for row in made.slow:
    print(row.group, row.topic, row.lag_s)
"""

from pathlib import Path

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.jobs.cluster_queries import ask
from ternmq_pipeline.jobs.cluster_report.files import write_tables, write_text
from ternmq_pipeline.jobs.cluster_report.page import page
from ternmq_pipeline.jobs.cluster_report.report_queries import query_report
from ternmq_pipeline.jobs.cluster_report.report_tables import ClusterReport
from ternmq_pipeline.jobs.driver.requirements import need
from ternmq_runtime.clock import SystemClock


def report(
    nameserver: str,
    *,
    html: str | Path | None = None,
    parquet: str | Path | None = None,
    hours: int = 24,
    slow_after_s: float = 300.0,
    clock: Clock | None = None,
) -> ClusterReport:
    """Report the state of a cluster, and write the report to files.

    A report does not change the cluster and reads no messages: rates are counters of the brokers,
    and the traffic of an hour or a day is a difference of offsets.

    Args:
        nameserver: `HOST:PORT`; several separated by commas.
        html: File for a self-contained page with plots; None = no page.
        parquet: Folder for the tables, one file each; old files are replaced. None = no tables.
        hours: Number of hours of the traffic.
        slow_after_s: Least age of a waiting message in a slow group, s.
        clock: Clock of the report; None = the system's.

    Returns:
        Tables of the report. `unreachable` has the brokers without an answer.

    Raises:
        MissingPackage: The extra for `html` or `parquet` is not installed.
        UsageError: A number is out of bounds.
        TransportError: No NameServer or no broker answers. No file is written.
    """
    if not 1 <= hours <= 24 * 31:
        raise UsageError(f"hours={hours}: from 1 to {24 * 31}")
    if slow_after_s <= 0:
        raise UsageError(f"slow_after_s={slow_after_s}: more than 0")
    if html is not None:
        need("the report as HTML", "matplotlib", "jinja2")
    if parquet is not None:
        need("the report as Parquet", "pyarrow")
    now_ms, slow_after_ms = (clock or SystemClock()).wall_ms(), round(slow_after_s * 1000)

    async def question(admin: AdminClient) -> ClusterReport:
        config = ClientConfig(nameservers=nameserver_texts(nameserver))
        async with ClusterReader(config, retry_timeout_s=0) as reader:
            return await query_report(
                admin,
                reader,
                now_ms=now_ms,
                hours=hours,
                slow_after_ms=slow_after_ms,
            )

    made = ask(nameserver, question)
    if parquet is not None:
        write_tables(made, Path(parquet))
    if html is not None:
        write_text(Path(html), page(made))
    return made
