"""`ternmq`: services, administration, and messages from and to the shell."""

import logging
import sys
from typing import Final

import click

from ternmq_console.cli.lazy_group import LazyGroup
from ternmq_model.version import __version__

_HERE = "ternmq_console"

topic = LazyGroup(
    name="topic",
    help="Create, list, describe and delete topics.",
    lazy={
        "create": (f"{_HERE}.topic:create", "Create a topic, or set all of its settings."),
        "alter": (f"{_HERE}.topic:alter", "Change some settings of a topic."),
        "list": (f"{_HERE}.topic:list_", "List topics."),
        "describe": (f"{_HERE}.topic:describe", "Show a topic's queues and their offsets."),
        "status": (f"{_HERE}.topic:status", "Show what a topic's queues hold."),
        "routes": (f"{_HERE}.topic:routes", "Show what clients are told of a topic."),
        "order": (f"{_HERE}.topic:order", "Show or set a topic's fixed order of queues."),
        "offsets": (f"{_HERE}.topic:offsets", "Show where a topic's queues stood at a time."),
        "delete": (f"{_HERE}.topic:delete", "Delete a topic and what its groups have consumed."),
    },
)

group = LazyGroup(
    name="group",
    help="Set up, look at, reset and delete consumer groups.",
    lazy={
        "create": (f"{_HERE}.group.changes:create", "Create a group, or set all of its settings."),
        "alter": (f"{_HERE}.group.changes:alter", "Change some settings of a group."),
        "list": (f"{_HERE}.group.groups:list_", "List groups with members, offsets or settings."),
        "describe": (f"{_HERE}.group.groups:describe", "Show a group's members, offsets and lag."),
        "consumers": (f"{_HERE}.group.clients:consumers", "Show a group's members, or ask one."),
        "producers": (f"{_HERE}.group.clients:producers", "Show live producers."),
        "reset": (f"{_HERE}.group.changes:reset", "Set where a group goes on, by time or offset."),
        "clone": (f"{_HERE}.group.changes:clone", "Let one group be as far as another."),
        "delete": (f"{_HERE}.group.changes:delete", "Delete a group and all that belongs to it."),
    },
)

dlq = LazyGroup(
    name="dlq",
    help="Look at dead letters, send them again, or drop them.",
    lazy={
        "list": (f"{_HERE}.dlq:list_", "List groups with dead letters, and how many."),
        "show": (f"{_HERE}.dlq:show", "Show dead letters of a group."),
        "redrive": (f"{_HERE}.dlq:redrive", "Send dead letters again, each once."),
        "drop": (f"{_HERE}.dlq:drop", "Drop dead letters, or delete them."),
    },
)

transaction = LazyGroup(
    name="transaction",
    help="Look at open transactions, and roll back what a killed driver has staged.",
    lazy={
        "list": (f"{_HERE}.transaction:list_", "List open transactions by batch and broker."),
        "rollback": (f"{_HERE}.transaction:rollback", "Roll back staged rows of a query."),
    },
)

cluster = LazyGroup(
    name="cluster",
    help="Look at clusters, and take brokers out of use.",
    lazy={
        "list": (
            f"{_HERE}.cluster.brokers:list_",
            "List masters and slaves and how their stores stand.",
        ),
        "clean": (f"{_HERE}.broker.clean:clean", "Let a broker delete what has expired now."),
        "status": (
            f"{_HERE}.cluster.cluster_health:status",
            "Tell whether the cluster is healthy.",
        ),
        "wipe-write-permission": (
            f"{_HERE}.cluster.brokers:wipe_write_permission",
            "Let nobody send to a broker any more.",
        ),
    },
)

message = LazyGroup(
    name="message",
    help="Look at messages.",
    lazy={
        "get": (f"{_HERE}.message.lookup:get", "Show one message by either of its ids."),
        "query": (f"{_HERE}.message.lookup:query", "List messages by key."),
        "query-by-offset": (
            f"{_HERE}.message.lookup:query_by_offset",
            "Show the message at an offset of a queue.",
        ),
        "print": (f"{_HERE}.message.print:print_", "Print the messages that a topic keeps."),
        "trace": (f"{_HERE}.message.trace:trace", "Show who sent and who consumed a message."),
        "send": (f"{_HERE}.message.send:send", "Send one message."),
    },
)

offset = LazyGroup(
    name="offset",
    help="Look at how far groups are, and skip what waits.",
    lazy={
        "show": (
            f"{_HERE}.group.offsets:show",
            "Show the lag of a group in each queue, or of all.",
        ),
        "skip": (f"{_HERE}.group.offsets:skip", "Let a group skip everything that waits."),
    },
)

stats = LazyGroup(
    name="stats",
    help="Look at what brokers count: by topic, queue, group and broker.",
    lazy={
        "all": (f"{_HERE}.stats:all_", "Show every topic with its groups: rates and lag."),
        "top": (f"{_HERE}.stats:top", "Show the busiest topics or groups."),
        "show": (f"{_HERE}.stats:show", "Show counters by RocketMQ's names."),
    },
)

store = LazyGroup(
    name="store",
    help="Look into a data directory: the files of a store, ours or Apache RocketMQ's.",
    lazy={
        "dump": (f"{_HERE}.store.dump:dump", "Print every record, unit or index entry."),
        "check": (f"{_HERE}.store.check:check", "Check everything, and change nothing."),
        "repair": (f"{_HERE}.store.repair:repair", "Remove what the next start builds anew."),
    },
)

pipeline = LazyGroup(
    name="pipeline",
    help="Move topics to and from files with Spark, and report on a cluster.",
    lazy={
        "archive": (f"{_HERE}.pipeline.jobs:archive", "Keep topics as Parquet, by topic and date."),
        "replay": (f"{_HERE}.pipeline.jobs:replay", "Send an archive, or a topic's past, again."),
        "redrive": (f"{_HERE}.pipeline.jobs:redrive", "Send dead letters to their first topics."),
        "report": (f"{_HERE}.pipeline.report:report", "Show lag, rates, sizes and who is slow."),
    },
)

ternmq = LazyGroup(
    name="ternmq",
    help=(
        "A message queue with Apache RocketMQ's semantics and files.\n\n"
        "Exit codes: 0 done, 1 failed, 2 usage or a refused value, 3 not found, 4 unreachable"
        " or printed in part, 141 nobody reads the output."
    ),
    lazy={
        "dev": (f"{_HERE}.services.commands:dev", "Run a NameServer and a broker in one process."),
        "nameserver": (f"{_HERE}.services.commands:nameserver", "Run a NameServer."),
        "broker": (f"{_HERE}.broker.command:broker", "Run a broker, or look at one that runs."),
        "health": (f"{_HERE}.services.health:health", "Tell whether a service serves."),
        "produce": (
            f"{_HERE}.message.produce:produce",
            "Send lines of standard input as messages.",
        ),
        "consume": (f"{_HERE}.message.consume:consume", "Print messages as they come."),
        "topic": (f"{_HERE}.main:topic", "Create, list, describe and delete topics."),
        "group": (f"{_HERE}.main:group", "Set up, look at, reset and delete consumer groups."),
        "dlq": (f"{_HERE}.main:dlq", "Look at dead letters, send them again, or drop them."),
        "cluster": (f"{_HERE}.main:cluster", "Look at clusters, and take brokers out of use."),
        "transaction": (f"{_HERE}.main:transaction", "List open transactions, roll back staged."),
        "message": (f"{_HERE}.main:message", "Look at messages, and send one."),
        "offset": (f"{_HERE}.main:offset", "Look at how far groups are."),
        "stats": (f"{_HERE}.main:stats", "Look at what brokers count."),
        "store": (f"{_HERE}.main:store", "Look into a data directory."),
        "pipeline": (f"{_HERE}.main:pipeline", "Archive, replay, redrive and report."),
    },
    hidden=f"{_HERE}.aliases:command",
)
click.version_option(__version__, prog_name="ternmq")(ternmq)


LOGGERS: Final = (
    "ternmq",
    "ternmq_broker",
    "ternmq_client",
    "ternmq_console",
    "ternmq_consumer",
    "ternmq_model",
    "ternmq_nameserver",
    "ternmq_pipeline",
    "ternmq_producer",
    "ternmq_protos",
    "ternmq_remoting",
    "ternmq_runtime",
    "ternmq_store",
)
"""Every package's logger."""


def quieten_logs() -> None:
    """Keep Python from printing our warnings where nobody configured logging.

    A verb for clients ends with one line that says all. Services configure logging, and see them.
    """
    for name in LOGGERS:
        logging.getLogger(name).addHandler(logging.NullHandler())


def main() -> None:
    """Run the command line of this process; never returns."""
    quieten_logs()
    sys.exit(ternmq.main(prog_name="ternmq"))


if __name__ == "__main__":
    main()
