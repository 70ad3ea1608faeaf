"""`ternmq cluster …`."""

import click

from ternmq_client.admin import AdminClient
from ternmq_console.admin import ask, time_text
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import print_record, print_rows
from ternmq_model.errors import TransportError
from ternmq_protos.v1 import admin_pb2 as admin_messages

_COLUMNS = (
    *("cluster", "broker", "id", "addresses", "status", "version", "flush", "log_bytes"),
    "disk",
)


@click.command(name="list")
@nameserver_option
@output_option
def list_(nameserver: str, output: str) -> None:
    """List the brokers of every cluster, and how their stores stand.

    A broker that is registered and does not answer is listed as unreachable.
    """
    print_rows(ask(nameserver, _brokers), _COLUMNS, output)


@click.command()
@click.argument("broker")
@nameserver_option
@output_option
def wipe_write_permission(broker: str, nameserver: str, output: str) -> None:
    """Let nobody send to BROKER any more, so that it can be emptied and stopped.

    Name every NameServer: each keeps this for itself, in memory, until it or BROKER is restarted.
    """
    changed = ask(nameserver, lambda admin: admin.wipe_write_permission(broker))
    print_record({"broker": broker, "topics_changed": changed}, output)


@click.command()
@click.argument("broker")
@nameserver_option
@output_option
def clean(broker: str, nameserver: str, output: str) -> None:
    """Let BROKER delete what has expired now, without waiting for the hour.

    Expired is what is older than `store.file_reserved_hours` and than every topic's retention.
    What no checkpoint vouches for stays: just after a start of BROKER that is everything. So
    0 files deleted may mean that it is too early; ask again `store.checkpoint_interval_ms` later.
    """
    reply = ask(nameserver, lambda admin: admin.clean_store(broker))
    print_record(
        {
            "broker": broker,
            "files_deleted": reply.files_deleted,
            "log_min_offset": reply.log_min_offset,
        },
        output,
    )


async def _brokers(admin: AdminClient) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for data in await admin.brokers():
        for member in data.members:
            row: dict[str, object] = {
                "cluster": data.cluster,
                "broker": data.broker_name,
                "id": member.broker_id,
                "addresses": [str(address) for address in member.endpoints],
                "status": "registered",
                "version": None,
                "flush": None,
                "log_bytes": None,
                "disk": None,
            }
            if member is data.master:
                try:
                    status = await admin.broker_status(data)
                except TransportError:
                    row["status"] = "unreachable"
                else:
                    row |= {
                        "status": "serving",
                        "version": status.version,
                        "flush": status.flush_mode,
                        "log_bytes": status.log_max_offset - status.log_min_offset,
                        "disk": f"{status.disk_used_percent:.1f} % {status.disk_level}",
                        "disk_used_percent": round(status.disk_used_percent, 1),
                        "disk_level": status.disk_level,
                        "epoch": status.epoch,
                        "started": time_text(status.started_at_ms),
                        "log_min_offset": status.log_min_offset,
                        "log_max_offset": status.log_max_offset,
                        "log_flushed_offset": status.log_flushed_offset,
                        "log_confirm_offset": status.log_confirm_offset,
                        "dispatched_offset": status.dispatched_offset,
                        **_waiting(status.waiting),
                        **_transactions(status.transactions),
                    }
            rows.append(row)
    return rows


def _transactions(told: admin_messages.OpenTransactions) -> dict[str, object]:
    """Return what a broker tells of its transactions."""
    return {
        "transactions_open": told.open,
        "transactions_committed": told.committed,
        "transactions_rolled_back": told.rolled_back,
        "transactions_asked": told.asked,
        "transactions_alone": told.alone,
        "transactions_parked": told.parked,
        "transactions_unreadable": told.unreadable,
    }


def _waiting(told: admin_messages.WaitingMessages) -> dict[str, object]:
    """Return what a broker tells of messages that are delivered later."""
    return {
        "delayed": told.delayed,
        "timed": told.timed,
        "waited_delivered": told.delivered,
        "waited_dropped": told.dropped,
        "timed_cancelled": told.cancelled,
        "timed_late_p50_ms": told.late_p50_ms,
        "timed_late_p99_ms": told.late_p99_ms,
        "timed_late_max_ms": told.late_max_ms,
    }
