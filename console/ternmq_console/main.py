"""Root of the command line `ternmq`, with its groups of verbs."""

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import click

from ternmq_console.cli.lazy_group import LazyGroup
from ternmq_model.version import __version__

topic = LazyGroup(
    name="topic",
    help="Create, list, describe and delete topics.",
    lazy={
        "create": (".topic:create", "Create a topic, or set all of its settings."),
        "alter": (".topic:alter", "Change some settings of a topic."),
        "list": (".topic:list_", "List topics."),
        "describe": (".topic:describe", "Show a topic's queues and their offsets."),
        "status": (".topic:status", "Show how many messages each queue of a topic holds."),
        "routes": (".topic:routes", "Show the route of a topic, as clients get it."),
        "order": (".topic:order", "Show or set a topic's fixed order of queues."),
        "offsets": (".topic:offsets", "Show the offset of each queue at a time."),
        "delete": (".topic:delete", "Delete a topic with the offsets of its groups."),
    },
)

group = LazyGroup(
    name="group",
    help="Create, describe, reset and delete consumer groups.",
    lazy={
        "create": (".group.changes:create", "Create a group, or set all of its settings."),
        "alter": (".group.changes:alter", "Change some settings of a group."),
        "list": (".group.queries:list_", "List groups with members, offsets or settings."),
        "describe": (".group.queries:describe", "Show a group's members, offsets and lag."),
        "consumers": (
            ".group.queries:consumers",
            "Show the members of a group, or the state of one.",
        ),
        "producers": (".group.queries:producers", "Show live producers."),
        "reset": (".group.changes:reset", "Set the offsets of a group, by time or offset."),
        "clone": (".group.changes:clone", "Copy the offsets of one group to another."),
        "delete": (
            ".group.changes:delete",
            "Delete a group with all that belongs to it.",
        ),
    },
)

dlq = LazyGroup(
    name="dlq",
    help="List, show, redrive and drop dead letters.",
    lazy={
        "list": (".dlq:list_", "List groups with the number of their dead letters."),
        "show": (".dlq:show", "Show dead letters of a group."),
        "redrive": (".dlq:redrive", "Send dead letters again, each once."),
        "drop": (".dlq:drop", "Drop dead letters, or delete them."),
    },
)

transaction = LazyGroup(
    name="transaction",
    help="List open transactions, and roll back staged rows.",
    lazy={
        "list": (".transaction:list_", "List open transactions by batch and broker."),
        "rollback": (".transaction:rollback", "Roll back staged rows of a query."),
    },
)

cluster = LazyGroup(
    name="cluster",
    help="List brokers, check their health, and take them out of use.",
    lazy={
        "list": (
            ".cluster:list_",
            "List masters and slaves with the state of their stores.",
        ),
        "clean": (".broker.settings:clean", "Delete expired files of a broker now."),
        "status": (
            ".cluster:status",
            "Check the health of the cluster.",
        ),
        "wipe-write-permission": (
            ".cluster:wipe_write_permission",
            "Remove write permission from every topic of a broker.",
        ),
    },
)

message = LazyGroup(
    name="message",
    help="Get, query, print and send messages.",
    lazy={
        "get": (".message.lookup:get", "Show one message by either of its ids."),
        "query": (".message.lookup:query", "List messages by key."),
        "query-by-offset": (
            ".message.lookup:query_by_offset",
            "Show the message at an offset of a queue.",
        ),
        "print": (".message.lookup:print_", "Print the stored messages of a topic."),
        "trace": (".message.trace:trace", "Show the producer and the consumers of a message."),
        "send": (".message.send:send", "Send one message."),
    },
)

offset = LazyGroup(
    name="offset",
    help="Show the lag of groups, and skip waiting messages.",
    lazy={
        "show": (
            ".group.queries:show",
            "Show the lag of a group in each queue, or of all groups.",
        ),
        "skip": (".group.changes:skip", "Skip all waiting messages of a group."),
    },
)

stats = LazyGroup(
    name="stats",
    help="Show the counters of topics, queues and groups.",
    lazy={
        "all": (".stats:all_", "Show every topic with its groups: rates and lag."),
        "top": (".stats:top", "Show the busiest topics or groups."),
        "show": (".stats:show", "Show counters by RocketMQ's names."),
    },
)

store = LazyGroup(
    name="store",
    help="Inspect or repair the files of a store.",
    lazy={
        "dump": (".store.dump:dump", "Print every record, unit or index entry."),
        "check": (".store.check:check", "Check every file, and change none."),
        "repair": (".store.repair:repair", "Remove damaged files that the next start rebuilds."),
    },
)

cert = LazyGroup(
    name="cert",
    help="Make certificates for development, and show one.",
    lazy={
        "ca": (".cert:ca", "Make a certificate authority."),
        "issue": (".cert:issue", "Make a certificate for a user or a service."),
        "show": (".cert:show", "Show the subject, names and dates of a certificate."),
    },
)

user = LazyGroup(
    name="user",
    help="Manage users, their tokens and certificates.",
    lazy={
        "create": (".access.users:create", "Create a user, and print its token."),
        "list": (".access.users:list_", "List users with their tokens and subjects."),
        "show": (".access.users:show", "Show the tokens and permissions of a user."),
        "rotate": (".access.users:rotate", "Make a second token of a user."),
        "revoke": (".access.users:revoke", "Revoke a token."),
        "remove": (".access.users:remove", "Remove a user with its permissions."),
        "subject": (".access.users:subject", "Change the certificates of a user."),
        "deny-certificate": (".access.users:deny_certificate", "Deny certificates, or list them."),
        "undeny-certificate": (".access.users:undeny_certificate", "Stop denying certificates."),
        "recover": (
            ".access.recover:recover",
            "Make an administrator at a stopped NameServer.",
        ),
    },
)

acl = LazyGroup(
    name="acl",
    help="List, grant, revoke and test permissions.",
    lazy={
        "list": (".access.acl:list_", "List permissions."),
        "grant": (".access.acl:grant", "Allow or deny an action to a user."),
        "revoke": (".access.acl:revoke", "Remove a permission or denial."),
        "test": (".access.acl:test_", "Check whether a user may do something."),
    },
)

pipeline = LazyGroup(
    name="pipeline",
    help="Archive, replay and redrive with Spark; report on a cluster.",
    lazy={
        "archive": (".pipeline.jobs:archive", "Archive topics as Parquet, by topic and date."),
        "replay": (".pipeline.jobs:replay", "Send stored messages of an archive or a topic again."),
        "redrive": (".pipeline.jobs:redrive", "Send dead letters to their original topics."),
        "report": (".pipeline.report:report", "Show lag, rates, sizes and slow groups."),
    },
)

generate = LazyGroup(
    name="generate",
    help="Write boards for Grafana and alert rules for Prometheus.",
    lazy={
        "grafana": (".generate.command:grafana", "Write four boards."),
        "prometheus-rules": (".generate.command:prometheus_rules", "Write alert rules."),
    },
)

_GROUPS: Final = (
    topic,
    group,
    dlq,
    cluster,
    transaction,
    message,
    offset,
    stats,
    store,
    cert,
    user,
    acl,
    pipeline,
    generate,
)

ternmq = LazyGroup(
    name="ternmq",
    help=(
        "A message queue with Apache RocketMQ's semantics and files.\n\n"
        "Exit codes: 0 done, 1 failed, 2 usage or a refused value, 3 not found, 4 unreachable"
        " or printed in part, 141 reader of the output gone."
    ),
    lazy={
        "dev": (".services.commands:dev", "Run a NameServer and a broker in one process."),
        "nameserver": (".services.commands:nameserver", "Run a NameServer."),
        "broker": (".broker.command:broker", "Run a broker, or manage a running one."),
        "health": (".services.health:health", "Check the health of one service."),
        "produce": (
            ".message.produce:produce",
            "Send lines of standard input as messages.",
        ),
        "consume": (".message.consume:consume", "Print new messages as they arrive."),
        "explain": (".message.explain:explain", "Show the life of one message."),
        **{one.name or "": (f".main:{one.name}", one.help or "") for one in _GROUPS},
    },
    hidden=".aliases:command",
)
click.version_option(__version__, prog_name="ternmq")(ternmq)


@contextmanager
def _credentials(path: str) -> Generator[None]:
    """Let the environment of this process name a file of credentials while the block runs."""
    from ternmq_remoting.tls import CREDENTIALS_VARIABLE

    former = os.environ.get(CREDENTIALS_VARIABLE)
    os.environ[CREDENTIALS_VARIABLE] = path
    try:
        yield
    finally:
        if former is None:
            del os.environ[CREDENTIALS_VARIABLE]
        else:
            os.environ[CREDENTIALS_VARIABLE] = former


def _use_credentials(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None and not context.resilient_parsing:
        context.with_resource(_credentials(path))


click.option(
    "--credentials",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    expose_value=False,
    callback=_use_credentials,
    help="File with the CA, token or certificate of this command; also $TERNMQ_CREDENTIALS_FILE.",
)(ternmq)


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
    "ternmq_security",
    "ternmq_store",
    "ternmq_testing",
)
"""Names of the loggers of all packages."""


def quieten_logs() -> None:
    """Suppress log lines unless a verb configures logging, as services do.

    The error of any other verb is a single line.
    """
    for name in LOGGERS:
        logging.getLogger(name).addHandler(logging.NullHandler())


def main() -> None:
    """Run the command line of this process; never returns."""
    quieten_logs()
    # No verb does linear algebra; a thread of numpy's OpenBLAS costs up to 0.1 s of a processor.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(ternmq.main(prog_name="ternmq"))


if __name__ == "__main__":
    main()
