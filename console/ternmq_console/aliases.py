"""RocketMQ's `mqadmin` names for our verbs: one table, and how their options become ours.

Source: RocketMQ `MQAdminStartup` and its sub-commands.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_model.errors import UsageError

Words = Sequence[str]


def _option(name: str) -> Callable[[str], Words]:
    return lambda value: (name, value)


def _ignored(_: str) -> Words:
    return ()


def _switch(name: str) -> Callable[[str], Words]:
    """Return what makes `--name` of true, and `--no-name` of false."""

    def words(value: str) -> Words:
        if value.lower() not in ("true", "false"):
            raise UsageError(f"{value!r}: must be true or false")
        return (f"--{name}" if value.lower() == "true" else f"--no-{name}",)

    return words


def _permissions(value: str) -> Words:
    known = {"2": "w", "4": "r", "6": "rw"}
    if value not in known:
        raise UsageError(f"permission {value!r}: must be 2 (write), 4 (read) or 6 (both)")
    return ("--permissions", known[value])


def _reset_time(value: str) -> Words:
    return ("--to-last",) if value == "now" else ("--to-time", _time(value))


def _force(value: str) -> Words:
    """Without force mqadmin leaves alone what is not as far as the new offset."""
    return () if value.lower() == "true" else ("--backwards-only",)


def _offsets_too(value: str) -> Words:
    if value.lower() != "true":
        raise UsageError(f"{value!r}: a group is deleted with its offsets, or not at all")
    return ()


def _begin(value: str) -> Words:
    return ("--begin", _time(value))


def _end(value: str) -> Words:
    return ("--end", _time(value))


_MQADMIN_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d)(?::(\d{3}))?", re.ASCII)


def _time(value: str) -> str:
    """Return a time as our verbs take it; mqadmin writes 2026-11-20#23:09:07:500."""
    match = _MQADMIN_TIME.fullmatch(value)
    return value if match is None else f"{match[1]}T{match[2]}.{match[3] or '000'}"


SETTINGS: Final[Mapping[str, str]] = {
    "accessMessageInMemoryMaxRatio": "store.access_message_in_memory_max_ratio",
    "autoCreateTopicEnable": "broker.auto_create_topics",
    "brokerSuspendMaxTimeMillis": "broker.pull_wait_max_ms",
    "cleanFileForciblyEnable": "store.clean_forcibly",
    "dataReadAheadEnable": "store.read_ahead_enabled",
    "defaultTopicQueueNums": "broker.default_topic_queues",
    "deleteCommitLogFilesInterval": "store.delete_pause_ms",
    "deleteFileBatchMax": "store.delete_files_max",
    "diskFallRecorded": "store.disk_fall_recorded",
    "diskMaxUsedSpaceRatio": "store.disk_clean_percent",
    "fileReservedTime": "store.file_reserved_hours",
    "flushCommitLogLeastPages": "store.flush_least_pages",
    "flushCommitLogThoroughInterval": "store.flush_thorough_interval_ms",
    "flushIntervalCommitLog": "store.flush_interval_ms",
    "longPollingEnable": "broker.long_polling_enabled",
    "maxTransferBytesOnMessageInDisk": "store.read_disk_bytes_max",
    "maxTransferBytesOnMessageInMemory": "store.read_memory_bytes_max",
    "maxTransferCountOnMessageInDisk": "store.read_disk_messages_max",
    "maxTransferCountOnMessageInMemory": "store.read_memory_messages_max",
    "traceOn": "broker.trace",
    "waitTimeMillsInSendQueue": "broker.unread_max_ms",
}
"""RocketMQ's names of the settings that may change at run time."""


@dataclass(frozen=True, slots=True)
class Alias:
    """One of mqadmin's sub-commands."""

    verb: Words
    """Ours."""

    places: Words = ()
    """Options whose values become our arguments, in their order."""

    options: Mapping[str, Callable[[str], Words]] = field(
        default_factory=dict[str, Callable[[str], Words]]
    )
    """Translation of the value of each other option."""

    flags: Mapping[str, Words] = field(default_factory=dict[str, Words])
    """Translation of each option without a value."""

    after: Words = ()
    """Words of ours that always follow."""

    needed: Words = ()
    """Options that must be given."""


_BROKER: Final = {"-b": _option("--broker"), "-c": _option("--cluster")}
_SUB_GROUP: Final = {
    **_BROKER,
    "-s": _switch("consume"),
    "-m": _switch("from-min"),
    "-d": _switch("broadcast"),
    "-q": _option("--retry-queues"),
    "-r": _option("--retries"),
    "-i": _option("--broker-id"),
    "-w": _option("--broker-id-when-slow"),
    "-a": _switch("notify"),
}

ALIASES: Final[Mapping[str, Alias]] = {
    "updateTopic": Alias(
        ("topic", "create"),
        ("-t",),
        {
            **_BROKER,
            "-r": _option("--read-queues"),
            "-w": _option("--write-queues"),
            "-p": _permissions,
        },
        needed=("-t",),
    ),
    "deleteTopic": Alias(
        ("topic", "delete"), ("-t",), {"-c": _option("--cluster")}, needed=("-t",)
    ),
    "topicRoute": Alias(("topic", "routes"), ("-t",), flags={"-l": ()}, needed=("-t",)),
    "topicStatus": Alias(("topic", "status"), ("-t",), {"-c": _ignored}, needed=("-t",)),
    "topicList": Alias(("topic", "list"), flags={"-c": ()}, after=("--all",)),
    "clusterList": Alias(
        ("cluster", "list"), (), {"-c": _option("--cluster"), "-i": _ignored}, {"-m": ()}
    ),
    "brokerStatus": Alias(("broker", "status"), ("-b",), {"-c": _ignored}),
    "haStatus": Alias(("broker", "ha"), ("-b",), {"-c": _ignored, "-i": _ignored}, needed=("-b",)),
    "getSyncStateSet": Alias(
        ("broker", "ha"),
        ("-b",),
        {"-a": _ignored, "-c": _ignored, "-i": _ignored},
        needed=("-b",),
    ),
    "getBrokerEpoch": Alias(
        ("broker", "ha"), ("-b",), {"-c": _ignored, "-i": _ignored}, needed=("-b",)
    ),
    "updateSubGroup": Alias(("group", "create"), ("-g",), _SUB_GROUP, needed=("-g",)),
    "deleteSubGroup": Alias(
        ("group", "delete"),
        ("-g",),
        {**_BROKER, "-r": _offsets_too},
        needed=("-g",),
    ),
    "consumerProgress": Alias(("offset", "show"), ("-g",), {"-t": _option("--topic")}, {"-s": ()}),
    "consumerStatus": Alias(
        ("group", "consumers"),
        ("-g", "-i"),
        {"-b": _ignored},
        {"-s": ()},
        after=("--state",),
        needed=("-g",),
    ),
    "consumerConnection": Alias(("group", "consumers"), ("-g",), {"-b": _ignored}, needed=("-g",)),
    "producerConnection": Alias(("group", "producers"), ("-g",), {"-t": _ignored}, needed=("-g",)),
    "resetOffsetByTime": Alias(
        ("group", "reset"),
        ("-g",),
        {"-t": _option("--topic"), "-s": _reset_time, "-f": _force, "-o": _option("--to-offset")},
        needed=("-g", "-t"),
    ),
    "skipAccumulatedMessage": Alias(
        ("offset", "skip"), ("-g", "-t"), {"-f": _ignored}, needed=("-g", "-t")
    ),
    "cloneGroupOffset": Alias(
        ("group", "clone"),
        ("-s", "-d"),
        {"-t": _option("--topic"), "-o": _ignored},
        needed=("-s", "-d"),
    ),
    "queryMsgById": Alias(("message", "get"), ("-i",), {"-t": _option("--topic")}, needed=("-i",)),
    "queryMsgByUniqueKey": Alias(
        ("message", "get"),
        ("-i",),
        {"-t": _option("--topic"), "-c": _ignored},
        {"-a": ()},
        needed=("-i",),
    ),
    "queryMsgByKey": Alias(
        ("message", "query"),
        (),
        {
            "-t": _option("--topic"),
            "-k": _option("--key"),
            "-b": _begin,
            "-e": _end,
            "-m": _option("--max"),
            "-c": _ignored,
        },
        needed=("-t", "-k"),
    ),
    "queryMsgByOffset": Alias(
        ("message", "query-by-offset"),
        ("-t",),
        {
            "-b": _option("--broker"),
            "-i": _option("--queue"),
            "-o": _option("--offset"),
            "-f": _ignored,
        },
        needed=("-t", "-b", "-i", "-o"),
    ),
    "queryMsgTraceById": Alias(
        ("message", "trace"),
        ("-i",),
        {"-t": _option("--trace-topic"), "-b": _ignored, "-e": _ignored, "-c": _ignored},
        needed=("-i",),
    ),
    "printMsg": Alias(
        ("message", "print"),
        ("-t",),
        {"-s": _option("--tag"), "-b": _begin, "-e": _end, "-c": _ignored, "-d": _ignored},
        needed=("-t",),
    ),
    "consumeMessage": Alias(
        ("message", "print"),
        ("-t",),
        {
            "-b": _option("--broker"),
            "-i": _option("--queue"),
            "-o": _option("--offset"),
            "-s": _begin,
            "-e": _end,
            "-c": _option("--max"),
            "-g": _ignored,
        },
        needed=("-t",),
    ),
    "sendMessage": Alias(
        ("message", "send"),
        ("-t",),
        {
            "-p": _option("--body"),
            "-k": _option("--key"),
            "-c": _option("--tag"),
            "-b": _option("--broker"),
            "-i": _option("--queue"),
            "-m": lambda value: ("--trace",) if value.lower() == "true" else (),
        },
        needed=("-t", "-p"),
    ),
    "wipeWritePerm": Alias(("broker", "set-permission"), ("-b",), after=("r",), needed=("-b",)),
    "addWritePerm": Alias(("broker", "set-permission"), ("-b",), after=("rw",), needed=("-b",)),
    "statsAll": Alias(("stats", "all"), ("-t",), flags={"-a": ("--active",)}),
    "updateBrokerConfig": Alias(
        ("broker", "settings"),
        ("-b",),
        {"-k": _ignored, "-v": _ignored},
        needed=("-b", "-k", "-v"),
    ),
}
"""By mqadmin's name. An option that is ignored means what ours does anyway."""

_LONG: Final[Mapping[str, str]] = {
    "--namesrvAddr": "-n",
    "--brokerAddr": "-b",
    "--brokerName": "-b",
    "--clusterName": "-c",
    "--topic": "-t",
    "--groupName": "-g",
    "--consumerGroup": "-g",
    "--producerGroup": "-g",
    "--group": "-g",
    "--msgId": "-i",
    "--key": "-k",
    "--value": "-v",
    "--readQueueNums": "-r",
    "--writeQueueNums": "-w",
    "--perm": "-p",
    "--timestamp": "-s",
    "--offset": "-o",
    "--body": "-p",
    "--consumeEnable": "-s",
    "--consumeFromMinEnable": "-m",
    "--consumeBroadcastEnable": "-d",
    "--retryQueueNums": "-q",
    "--retryMaxTimes": "-r",
    "--brokerId": "-i",
    "--whichBrokerWhenConsumeSlowly": "-w",
    "--notifyConsumerIdsChanged": "-a",
    "--removeOffset": "-r",
    "--clientId": "-i",
    "--jstack": "-s",
    "--force": "-f",
    "--srcGroup": "-s",
    "--destGroup": "-d",
    "--offline": "-o",
    "--msgKey": "-k",
    "--maxNum": "-m",
    "--beginTimestamp": "-b",
    "--endTimestamp": "-e",
    "--queueId": "-i",
    "--qid": "-i",
    "--bodyFormat": "-f",
    "--traceTopic": "-t",
    "--subExpression": "-s",
    "--charsetName": "-c",
    "--printBody": "-d",
    "--MessageNumber": "-c",
    "--tags": "-c",
    "--broker": "-b",
    "--msgTraceEnable": "-m",
    "--activeTopic": "-a",
    "--list": "-l",
    "--clusterModel": "-c",
    "--moreStats": "-m",
    "--interval": "-i",
}
_LONG_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("consumeMessage", "--beginTimestamp"): "-s",
}
"""Long names that mqadmin gives to two letters, by verb."""

_OURS: Final = ("--json", "--yes")


def translate(name: str, arguments: Words) -> list[str]:
    """Return our command line for one of mqadmin's.

    Common options mean the same everywhere: `-n` NameServers, `-b` a broker's address or name,
    `-c` a cluster, `-t` a topic, `-g` a group. `--nameserver` and `--json` are understood as well.

    Raises:
        UsageError: An option is not known here, lacks its value, or is missing.
    """
    alias = ALIASES[name]
    given: dict[str, str] = {}
    words: list[str] = []
    rest = iter(_parted(arguments))
    for word in rest:
        option = _LONG_ELSEWHERE.get((name, word)) or _LONG.get(word, word)
        if option in _OURS:
            words.append(option)
        elif option in alias.flags:
            words += alias.flags[option]
        elif option in ("-n", "--nameserver") or option in alias.places or option in alias.options:
            value = next(rest, None)
            if value is None:
                raise UsageError(f"{name}: option {word} lacks its value")
            given[option] = value
        else:
            raise UsageError(f"{name}: option {word!r} is not known here")
    if missing := [option for option in alias.needed if option not in given]:
        raise UsageError(f"{name}: option {missing[0]} is missing")
    places = [given[option] for option in alias.places if option in given]
    for option, value in given.items():
        if option in ("-n", "--nameserver"):
            words += ("--nameserver", value)
        elif option not in alias.places:
            words += alias.options[option](value)
    if name == "updateBrokerConfig":
        words += ("--set", f"{SETTINGS.get(given['-k'], given['-k'])}={given['-v']}")
    options = [word for word in alias.after if word.startswith("--")]
    last = [word for word in alias.after if not word.startswith("--")]
    return [*alias.verb, *words, *options, "--", *places, *last]


def _parted(arguments: Words) -> Iterator[str]:
    """Yield the words of a line, `--name=value` as two."""
    for word in arguments:
        option, is_parted, value = word.partition("=")
        if is_parted and option.startswith("--"):
            yield from (option, value)
        else:
            yield word


def command(name: str) -> click.Command | None:
    """Return the hidden verb of one of mqadmin's names, or None."""
    if name not in ALIASES:
        return None

    @click.command(
        name=name,
        hidden=True,
        help=f"RocketMQ's name for `ternmq {' '.join(ALIASES[name].verb)}`.",
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run(context: click.Context, words: tuple[str, ...]) -> None:
        with errors_as_exits():
            line = translate(name, words)
        root = context.find_root()
        root.command.main(line, prog_name=root.info_name, standalone_mode=False)

    return run
