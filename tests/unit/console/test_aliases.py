"""mqadmin's names: every one leads to a verb of ours, with its options."""

import pytest
from click.testing import CliRunner

from ternmq_broker.live_settings import ALLOWED
from ternmq_console.aliases import ALIASES, SETTINGS, translate
from ternmq_console.main import ternmq
from ternmq_model.errors import UsageError

NAMES = (
    *("updateTopic", "deleteTopic", "topicRoute", "topicStatus"),
    *("topicList", "clusterList", "brokerStatus", "updateSubGroup"),
    *("deleteSubGroup", "consumerProgress", "consumerStatus", "consumerConnection"),
    *("producerConnection", "resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset"),
    *("queryMsgById", "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgByOffset"),
    *("queryMsgTraceById", "printMsg", "sendMessage", "consumeMessage"),
    *("wipeWritePerm", "addWritePerm", "statsAll", "updateBrokerConfig"),
    *("haStatus", "getSyncStateSet", "getBrokerEpoch"),
)


def test_every_name_has_an_alias() -> None:
    assert sorted(ALIASES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_alias_leads_to_its_verb_and_is_hidden(name: str) -> None:
    runner = CliRunner()
    shown = runner.invoke(ternmq, [*ALIASES[name].verb, "--help"])
    assert shown.exit_code == 0, shown.output
    assert name not in runner.invoke(ternmq, ["--help"]).output
    helped = runner.invoke(ternmq, [name, "--help"])
    assert f"ternmq {' '.join(ALIASES[name].verb)}" in helped.output


@pytest.mark.parametrize("name", NAMES)
def test_every_alias_option_belongs_to_its_verb(name: str) -> None:
    alias = ALIASES[name]
    shown = CliRunner().invoke(ternmq, [*alias.verb, "--help"]).output
    words = [*alias.after, *(word for words in alias.flags.values() for word in words)]
    for option, become in alias.options.items():
        try:
            words += become({"-p": "6", "-m": "true"}.get(option, "true"))
        except UsageError:
            words += become("6")
    assert [word for word in words if word.startswith("--") and word not in shown] == []


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        (
            "updateTopic -n ns:1 -c C -t T -r 4 -w 2 -p 6",
            "topic create --nameserver ns:1 --cluster C --read-queues 4 --write-queues 2"
            " --permissions rw -- T",
        ),
        ("deleteTopic -c C --topic T", "topic delete --cluster C -- T"),
        ("topicList -c", "topic list --all --"),
        ("consumerProgress", "offset show --"),
        ("consumerProgress -g G --json", "offset show --json -- G"),
        ("consumerStatus -g G -i C", "group consumers --state -- G C"),
        (
            "resetOffsetByTime -g G -t T -s now -f true",
            "group reset --topic T --to-last -- G",
        ),
        (
            "resetOffsetByTime --group=G --topic=T --timestamp=0 --force=false",
            "group reset --topic T --to-time 0 --backwards-only -- G",
        ),
        ("deleteSubGroup -b b -g G -r true", "group delete --broker b -- G"),
        ("deleteSubGroup -c C -g G", "group delete --cluster C -- G"),
        ("printMsg -t T --beginTimestamp 5", "message print --begin 5 -- T"),
        ("consumeMessage -t T --beginTimestamp 5", "message print --begin 5 -- T"),
        ("cloneGroupOffset --srcGroup A --destGroup B", "group clone -- A B"),
        (
            "updateSubGroup -g G --consumeEnable false --retryMaxTimes 3",
            "group create --no-consume --retries 3 -- G",
        ),
        (
            "resetOffsetByTime -g G -t T -s 2026-11-20#23:09:07:500",
            "group reset --topic T --to-time 2026-11-20T23:09:07.500 -- G",
        ),
        ("cloneGroupOffset -s A -d B -t T -o true", "group clone --topic T -- A B"),
        (
            "updateSubGroup -b b -g G -s false -r 3",
            "group create --broker b --no-consume --retries 3 -- G",
        ),
        ("wipeWritePerm -b b", "broker set-permission -- b r"),
        ("addWritePerm -b b", "broker set-permission -- b rw"),
        (
            "updateBrokerConfig -b b -k fileReservedTime -v 48",
            "broker settings --set store.file_reserved_hours=48 -- b",
        ),
        ("updateBrokerConfig -b b -k storePath -v /x", "broker settings --set storePath=/x -- b"),
        ("statsAll -a -t T", "stats all --active -- T"),
        ("haStatus -b b -c C", "broker ha -- b"),
        ("getSyncStateSet -a c:1 --brokerName=b", "broker ha -- b"),
        ("getBrokerEpoch -n ns:1 -b b", "broker ha --nameserver ns:1 -- b"),
    ],
)
def test_alias_options_become_ours(line: str, ours: str) -> None:
    name, *arguments = line.split()
    assert translate(name, arguments) == ours.split()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("deleteTopic -c C", "option -t is missing"),
        ("deleteTopic -t", "option -t lacks its value"),
        ("deleteTopic -t T -z 1", "option '-z' is not known here"),
        ("updateTopic -t T -p 7", "permission '7'"),
        ("updateSubGroup -g G -s maybe", "'maybe': must be true or false"),
        ("deleteSubGroup -g G -r false", "deleted with its offsets, or not at all"),
    ],
)
def test_illegal_alias_options_are_refused_with_a_usage_code(line: str, says: str) -> None:
    name, *arguments = line.split()
    with pytest.raises(UsageError, match=says):
        translate(name, arguments)
    assert CliRunner().invoke(ternmq, [name, *arguments]).exit_code == 2


def test_setting_aliases_name_changeable_settings() -> None:
    assert set(SETTINGS.values()) <= set(ALLOWED)
