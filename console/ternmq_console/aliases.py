"""RocketMQ's `mqadmin` sub-commands as hidden verbs: a table of their options' translations.

Source: RocketMQ `MQAdminStartup` and its sub-commands.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_model.errors import UsageError

Words = Sequence[str]


def _option(name: str) -> Callable[[str], Words]:
    return lambda value: (name, value)


def _ignored(_: str) -> Words:
    return ()


def _switch(names: str) -> Callable[[str], Words]:
    """Return the translation of a Boolean to one of `--name/--no-name`."""
    yes, _, no = names.partition("/")

    def words(value: str) -> Words:
        if value.lower() not in ("true", "false"):
            raise UsageError(f"{value!r}: must be true or false")
        return (yes if value.lower() == "true" else no,)

    return words


def _permissions(value: str) -> Words:
    known = {"2": "w", "4": "r", "6": "rw"}
    if value not in known:
        raise UsageError(f"permission {value!r}: must be 2 (write), 4 (read) or 6 (both)")
    return ("--permissions", known[value])


def _reset_time(value: str) -> Words:
    return ("--to-last",) if value == "now" else ("--to-time", _time(value))


def _force(value: str) -> Words:
    # Without force, mqadmin does not move an offset forward.
    return () if value.lower() == "true" else ("--backwards-only",)


def _offsets_too(value: str) -> Words:
    if value.lower() != "true":
        raise UsageError(f"{value!r}: a group is deleted with its offsets, or not at all")
    return ()


def _trace(value: str) -> Words:
    return ("--trace",) if value.lower() == "true" else ()


def _begin(value: str) -> Words:
    return ("--begin", _time(value))


def _end(value: str) -> Words:
    return ("--end", _time(value))


_MQADMIN_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d)(?::(\d{3}))?", re.ASCII)


def _time(value: str) -> str:
    """Return the ISO 8601 form of a time such as 2026-11-20#23:09:07:500; others unchanged."""
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
"""Settings that may change at run time, by RocketMQ's name."""


_CONVERSIONS: Final[Mapping[str, Callable[[str], Words]]] = {
    "": _ignored,
    "begin": _begin,
    "end": _end,
    "force": _force,
    "offsets-too": _offsets_too,
    "permissions": _permissions,
    "reset-time": _reset_time,
    "trace": _trace,
}


@dataclass(frozen=True, slots=True)
class Alias:
    """Translation of one sub-command of mqadmin."""

    verb: Words
    """Words of the verb of `ternmq`."""

    places: Words
    """Options whose values become arguments, in the order of the arguments."""

    options: Mapping[str, Callable[[str], Words]]
    """Translation of the value of each other option."""

    flags: Mapping[str, Words]
    """Translation of each option without a value."""

    after: Words
    """Words that always follow."""

    needed: Words
    """Options that must be given."""


_WORD: Final = re.compile(r"(-\w)(!?)(?:([=:])(.*))?", re.ASCII)


def _alias(row: str) -> Alias:
    verb: list[str] = []
    places: list[str] = []
    options: dict[str, Callable[[str], Words]] = {}
    flags: dict[str, Words] = {}
    after: list[str] = []
    needed: list[str] = []
    for word in row.split():
        match = _WORD.fullmatch(word)
        if match is None:
            is_verb = len(verb) < 2
            (verb if is_verb else after).append(word)
            continue
        option, is_needed, kind, ours = match.groups()
        if is_needed:
            needed.append(option)
        if kind is None:
            places.append(option)
        elif kind == ":":
            flags[option] = ours.split()
        elif "/" in ours:
            options[option] = _switch(ours)
        else:
            options[option] = _option(ours) if ours.startswith("--") else _CONVERSIONS[ours]
    return Alias(verb, places, options, flags, after, needed)


_BROKER: Final = "-b=--broker -c=--cluster"

ALIASES: Final[Mapping[str, Alias]] = {
    name: _alias(row)
    for name, row in {
        "updateTopic": f"topic create -t! {_BROKER} -r=--read-queues -w=--write-queues"
        " -p=permissions",
        "deleteTopic": "topic delete -t! -c=--cluster",
        "topicRoute": "topic routes -t! -l:",
        "topicStatus": "topic status -t! -c=",
        "topicList": "topic list -c: --all",
        "clusterList": "cluster list -c=--cluster -i= -m:",
        "brokerStatus": "broker status -b -c=",
        "haStatus": "broker ha -b! -c= -i=",
        "getSyncStateSet": "broker ha -b! -a= -c= -i=",
        "getBrokerEpoch": "broker ha -b! -c= -i=",
        "updateSubGroup": f"group create -g! {_BROKER} -s=--consume/--no-consume"
        " -m=--from-min/--no-from-min -d=--broadcast/--no-broadcast -q=--retry-queues"
        " -r=--retries -i=--broker-id -w=--broker-id-when-slow -a=--notify/--no-notify",
        "deleteSubGroup": f"group delete -g! {_BROKER} -r=offsets-too",
        "consumerProgress": "offset show -g -t=--topic -s:",
        "consumerStatus": "group consumers -g! -i -b= -s: --state",
        "consumerConnection": "group consumers -g! -b=",
        "producerConnection": "group producers -g! -t=",
        "resetOffsetByTime": "group reset -g! -t!=--topic -s=reset-time -f=force -o=--to-offset",
        "skipAccumulatedMessage": "offset skip -g! -t! -f=",
        "cloneGroupOffset": "group clone -s! -d! -t=--topic -o=",
        "queryMsgById": "message get -i! -t=--topic",
        "queryMsgByUniqueKey": "message get -i! -t=--topic -c= -a:",
        "queryMsgByKey": "message query -t!=--topic -k!=--key -b=begin -e=end -m=--max -c=",
        "queryMsgByOffset": "message query-by-offset -t! -b!=--broker -i!=--queue -o!=--offset -f=",
        "queryMsgTraceById": "message trace -i! -t=--trace-topic -b= -e= -c=",
        "printMsg": "message print -t! -s=--tag -b=begin -e=end -c= -d=",
        "consumeMessage": "message print -t! -b=--broker -i=--queue -o=--offset -s=begin -e=end"
        " -c=--max -g=",
        "sendMessage": "message send -t! -p!=--body -k=--key -c=--tag -b=--broker -i=--queue"
        " -m=trace",
        "wipeWritePerm": "broker set-permission -b! r",
        "addWritePerm": "broker set-permission -b! rw",
        "statsAll": "stats all -t -a:--active",
        "updateBrokerConfig": "broker settings -b! -k!= -v!=",
    }.items()
}
"""Translations by mqadmin's name. A row has the verb, then its options, `!` behind needed ones:

`-t` becomes an argument, `-c=--cluster` an option, `-s=--a/--b` one of two switches,
`-p=permissions` the words that a conversion returns; `-c=` is ignored with its value. `-a:--active`
has no value. Any other word always follows.
"""

_LONG: Final[Mapping[str, str]] = {
    f"--{name}": short
    for short, names in {
        "-n": "namesrvAddr",
        "-b": "brokerAddr brokerName beginTimestamp broker",
        "-c": "clusterName charsetName MessageNumber tags clusterModel",
        "-t": "topic traceTopic",
        "-g": "groupName consumerGroup producerGroup group",
        "-i": "msgId brokerId clientId queueId qid interval",
        "-k": "key msgKey",
        "-v": "value",
        "-r": "readQueueNums retryMaxTimes removeOffset",
        "-w": "writeQueueNums whichBrokerWhenConsumeSlowly",
        "-p": "perm body",
        "-s": "timestamp consumeEnable jstack srcGroup subExpression",
        "-o": "offset offline",
        "-m": "consumeFromMinEnable maxNum msgTraceEnable moreStats",
        "-d": "consumeBroadcastEnable destGroup printBody",
        "-q": "retryQueueNums",
        "-a": "notifyConsumerIdsChanged activeTopic",
        "-f": "force bodyFormat",
        "-e": "endTimestamp",
        "-l": "list",
    }.items()
    for name in names.split()
}
_LONG_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("consumeMessage", "--beginTimestamp"): "-s",
}
"""Long names that stand for another letter in one sub-command."""

_OURS: Final = ("--json", "--yes")


def translate(name: str, arguments: Words) -> list[str]:
    """Return the command line of `ternmq` for one of mqadmin's.

    Common options mean the same everywhere: `-n` NameServers, `-b` a broker's address or name,
    `-c` a cluster, `-t` a topic, `-g` a group. `--nameserver` and `--json` are understood as well.

    Raises:
        UsageError: An option is unknown, lacks its value, or is missing.
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
    """Yield the words of a command line, `--name=value` as two."""
    for word in arguments:
        option, is_parted, value = word.partition("=")
        if is_parted and option.startswith("--"):
            yield from (option, value)
        else:
            yield word


def command(name: str) -> click.Command | None:
    """Return the hidden verb for a sub-command of mqadmin, or None if there is none."""
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
