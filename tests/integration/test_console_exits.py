"""Exit codes of every verb, against `ternmq dev`: the table of docs/reference/console.md."""

import re
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from ternmq_console.main import ternmq
from tests.support.console import invoke, text_of
from tests.support.processes import (
    TERNMQ,
    ServiceProcess,
    free_port,
    running_dev,
    running_nameserver,
)

NOWHERE: Final = "/nowhere"
ID: Final = "0" * 32

SERVICES: Final = {"dev", "nameserver", "broker", "health"}
"""Run until a signal, or tell whether one does: no names are theirs to find."""

MISSING: Final[dict[str, tuple[str, ...]]] = {
    "topic create": ("t2 --cluster none", "t2 --broker none"),
    "topic alter": ("none --queues 3",),
    "topic list": ("--cluster none",),
    "topic describe": ("none",),
    "topic status": ("none",),
    "topic routes": ("none",),
    "topic order": ("none", "none --none", "none broker-a:8", "there broker-a:1;none:1"),
    "topic offsets": ("none --at 0",),
    "topic delete": ("none", "there --cluster none"),
    "group create": ("g2 --cluster none", "g2 --broker none"),
    "group alter": ("none --retries 2",),
    "group list": (),
    "group describe": ("none",),
    "group consumers": ("none", "none client", "readers client@nowhere"),
    "group producers": ("none",),
    "group reset": (
        "none --topic there --to-first",
        "readers --topic none --to-first",
        "readers --topic there --to-first --queue none/0",
    ),
    "group clone": ("none readers", "readers other --topic none"),
    "group delete": ("none", "readers --cluster none", "readers --broker none"),
    "dlq list": (),
    "dlq show": ("none",),
    "dlq redrive": ("none --all", f"none --message-id {ID}"),
    "dlq drop": ("none --yes",),
    "cluster list": ("--cluster none",),
    "cluster clean": ("none --yes",),
    "cluster status": ("none",),
    "cluster wipe-write-permission": ("none",),
    "message get": (ID, f"{ID} --topic none"),
    "message query": ("--topic none --key k", "--topic there --key k"),
    "message query-by-offset": (
        "none --broker broker-a --queue 0 --offset 0",
        "there --broker none --queue 0 --offset 0",
        "there --broker broker-a --queue 0 --offset 99",
    ),
    "message print": ("none", "there --broker none"),
    "message trace": (ID, f"{ID} --trace-topic none"),
    "message send": ("there --body x --broker none --queue 0",),
    "explain": (ID, "--topic none --key k", "--topic there --key k"),
    "offset show": ("none", "readers --topic none", "--topic none"),
    "offset skip": ("none there", "readers none"),
    "stats all": ("none",),
    "stats top": (),
    "stats show": ("--broker none",),
    "store dump": (NOWHERE,),
    "store check": (NOWHERE,),
    "store repair": (f"{NOWHERE} --yes",),
    "pipeline archive": (f"none --to {NOWHERE}",),
    "pipeline replay": ("there --topic none --dry-run",),
    "pipeline redrive": ("--group none --dry-run",),
    "pipeline report": (),
    "generate grafana": (),
    "generate prometheus-rules": (),
    "cert ca": (),
    "cert issue": (f"x --out {NOWHERE}",),
    "cert show": (NOWHERE,),
    "user create": (),
    "user list": (),
    "user show": ("none",),
    "user rotate": ("none",),
    "user revoke": ("none 12345678",),
    "user remove": ("none",),
    "user subject": ("none --add CN=none",),
    "user deny-certificate": (),
    "user undeny-certificate": ("--serial f0", "--subject CN=none"),
    "user recover": (f"none --data {NOWHERE}",),
    "acl list": ("--user none",),
    "acl grant": ("none publish topic:there",),
    "acl revoke": ("none publish topic:there", "anonymous publish topic:there"),
    "acl test": (),
    "broker status": ("none",),
    "broker ha": ("none",),
    "broker promote": ("none --broker-id 1 --yes", "broker-a --broker-id 7 --yes"),
    "broker repair-epoch": (f"none --data {NOWHERE} --yes",),
    "broker forget-epoch": (f"none --data {NOWHERE} --yes",),
    "broker settings": ("none",),
    "broker set-permission": ("none r",),
    "broker drain": ("none",),
    "broker undrain": ("none",),
    "broker clean": ("none --yes",),
    "transaction list": ("--broker none",),
    "transaction rollback": ("--query none --yes", "--query none --broker none --yes"),
    "consume": ("none --group readers",),
    "produce": (),
}
"""Words behind each verb that name what is not there."""

REFUSED: Final = (
    "topic create no@good",
    "topic create t2 --queues -1",
    "topic order there xx",
    "topic offsets there --at tomorrow",
    "group create no@good",
    "group reset readers --topic there --to-first --queue broker-a/99",
    "message query-by-offset there --broker broker-a --queue 99 --offset 0",
    f"message query-by-offset there --broker broker-a --queue 0 --offset {1 << 63}",
    "message print there --queue 99",
    "explain",
    "explain --key k",
    f"explain {ID} --topic there --key k",
    "message print there --broker broker-a --queue 99",
    "message print there --begin 1795216147",
    "topic offsets there --at 1795216147",
    "group reset readers --topic there --to-time 1795216147",
    "message send there --body x --broker broker-a --queue 99",
    "stats show --name NONE",
    "stats show --watch nan",
    "nameserver --set none.none=1",
    "transaction list --batch 1",
    "transaction list --query q --batch -1",
    "health nonsense",
    "health 127.0.0.1:1,127.0.0.1:2",
    "user create no@good",
    "user create ada --no-token --expires 1d",
    "user create ada --expires soon",
    "user create ada --ca nowhere.pem",
    "user deny-certificate --serial xyz",
    "user undeny-certificate",
    "acl grant no@good publish topic:there",
    "acl grant anonymous read topic:there",
    "acl grant anonymous publish there",
    "acl grant anonymous publish topic:no@good",
    "acl grant anonymous publish topic:%RETRY%readers",
    "acl grant anonymous replicate topic:there",
    "acl test anonymous publish topic:th*",
    "acl test anonymous admin *",
    *(f"health 127.0.0.1:1 --timeout {each}" for each in ("-1", "0", "nan", "inf", "x", "3601")),
)
"""Words that no service may take."""

OF_A_BROKER: Final[dict[str, int]] = {
    "topic create t2 --broker": 0,
    "group create readers --broker": 0,
    "group delete g2 --broker": 0,
    "message query-by-offset there --queue 0 --offset 0 --broker": 3,
    "message print there --broker": 0,
    "message send there --body x --queue 0 --broker": 0,
    "group reset readers --topic there --to-first --queue": 0,
    "stats show --broker": 0,
    "cluster status": 0,
    "cluster clean --yes": 0,
    "cluster wipe-write-permission": 0,
    "broker status": 0,
    "broker ha": 0,
    "broker settings": 0,
    "broker set-permission": 0,
    "broker drain": 0,
    "broker undrain": 0,
    "broker clean --yes": 0,
    "transaction list --broker": 0,
    "broker promote --broker-id 0 --yes": 2,  # it is the master
    "brokerStatus -b": 0,
    "haStatus -b": 0,
    "getSyncStateSet -b": 0,
    "getBrokerEpoch -b": 0,
    "wipeWritePerm -b": 0,
    "addWritePerm -b": 0,
    "updateBrokerConfig -k traceOn -v false --yes -b": 0,
}
"""Words of verbs before a broker, with their exit codes for one that is there."""

WITHOUT_NAMES: Final[dict[str, str]] = {
    "topic create": "t2",
    "produce": "there",
    "topic list": "",
    "group create": "g2",
    "group list": "",
    "dlq list": "",
    "cluster list": "",
    "transaction list": "",
    "stats top": "",
    "stats show": "",
    "pipeline report": "",
    "user create": "ada",
    "user list": "",
    "user deny-certificate": "--serial 1f",
    "acl test": "ada publish topic:there",
}
"""Words for verbs that work without any name."""


def verbs(command: click.Command = ternmq, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every verb that a help tells."""
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    for name in command.list_commands(context):
        if path == () and name in SERVICES:
            yield name
        below = command.get_command(context, name)
        assert below is not None
        if name not in SERVICES or isinstance(below, click.Group):
            yield from verbs(below, (*path, name))


VERBS: Final = tuple(verbs())
LOCAL: Final = {
    *SERVICES,
    *("store dump", "store check", "store repair", "broker forget-epoch", "broker repair-epoch"),
    *("cert ca", "cert issue", "cert show", "user recover"),
    *("generate grafana", "generate prometheus-rules"),
}
"""Verbs that ask nobody, or look into a directory before they do."""

ASKING: Final = tuple(verb for verb in VERBS if verb not in LOCAL)
"""Verbs that ask a cluster."""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        asked = ("--nameserver", running.nameserver)
        text_of("topic", "create", "there", "--queues", "1", *asked)
        text_of("group", "create", "readers", *asked)
        yield running


def told(words: str, nameserver: str = "") -> tuple[int, list[str]]:
    """Run a verb; return its exit code and what it says on standard error."""
    given = [*words.split(), *(["--nameserver", nameserver] if nameserver else [])]
    if given[0] in ("consume", "produce"):
        run = subprocess.run([*TERNMQ, *given], input="x", capture_output=True, text=True)
        return run.returncode, run.stderr.splitlines()
    done = invoke(*given)
    return done.exit_code, done.stderr.splitlines()


def test_table_names_every_verb() -> None:
    assert set(MISSING) == set(VERBS) - SERVICES


@pytest.mark.parametrize("verb", MISSING)
def test_verb_exits_with_3_for_what_is_not_there(verb: str, dev: ServiceProcess) -> None:
    for words in MISSING[verb]:
        code, lines = told(f"{verb} {words}", dev.nameserver if verb in ASKING else "")
        assert (code, len(lines)) == (3, 1), (words, lines)
        assert lines[0].startswith("ternmq: ")


@pytest.mark.parametrize("words", REFUSED)
def test_verb_exits_with_2_for_a_value_that_no_service_takes(
    words: str, dev: ServiceProcess
) -> None:
    code, lines = told(words, dev.nameserver if words.split()[0] not in SERVICES else "")
    assert code == 2, lines
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize("verb", OF_A_BROKER)
def test_registered_address_stands_for_its_broker(verb: str, dev: ServiceProcess) -> None:
    after = {"broker set-permission": " rw"}.get(verb, "/0" if verb.endswith("--queue") else "")
    told("group create g2", dev.nameserver)
    code, lines = told(f"{verb} {dev.broker}{after}", dev.nameserver)
    assert code == OF_A_BROKER[verb], lines
    code, lines = told(f"{verb} 127.0.0.1:1{after}", dev.nameserver)
    assert (code, len(lines)) == (3, 1), lines
    assert "127.0.0.1:1: no such broker is registered" in lines[0]


def test_refused_order_is_not_stored(dev: ServiceProcess) -> None:
    for topic in ("none", "there"):
        assert told(f"topic order {topic} none:8", dev.nameserver)[0] == 3
    assert "order" not in text_of("topic", "routes", "there", "--nameserver", dev.nameserver)
    # A topic of that name has no order when it comes to be.
    text_of("topic", "create", "late", "--nameserver", dev.nameserver)
    assert told("topic order late none:8", dev.nameserver)[0] == 3
    assert told("topic order late broker-a:1", dev.nameserver)[0] == 0
    assert told("topic order late --none", dev.nameserver)[0] == 0
    assert "broker-a:1" not in text_of("topic", "order", "late", "--nameserver", dev.nameserver)


def test_progress_of_all_groups_is_that_of_the_topic_alone(dev: ServiceProcess) -> None:
    asked = ("--nameserver", dev.nameserver)
    for group, topic in (("of-one", "one"), ("of-two", "two")):
        text_of("topic", "create", topic, *asked)
        text_of("group", "create", group, *asked)
        text_of("group", "reset", group, "--topic", topic, "--to-first", *asked)
    found = text_of("offset", "show", "--topic", "one", *asked)
    assert ("of-one" in found, "of-two" in found) == (True, False)


@pytest.mark.parametrize("verb", ASKING)
def test_address_of_a_broker_in_place_of_a_nameserver_is_told(
    verb: str, dev: ServiceProcess
) -> None:
    words = f"{verb} {WITHOUT_NAMES[verb] if verb in WITHOUT_NAMES else MISSING[verb][0]}"
    code, lines = told(words, dev.broker)
    assert code == 2, lines
    assert f"{dev.broker}: is broker broker-a" in lines[-1]
    assert "not a NameServer" in lines[-1]


def test_live_setting_of_unknown_name_is_a_refused_value(dev: ServiceProcess) -> None:
    words = "broker settings broker-a --yes --set"
    for change in ("none.none=1", "broker.port=1", "broker.trace=maybe"):
        assert told(f"{words} {change}", dev.nameserver)[0] == 2


@pytest.mark.parametrize("verb", VERBS)
def test_verb_exits_with_2_for_an_unknown_option(verb: str) -> None:
    code, lines = told(f"{verb} --no-such-option")
    assert code == 2
    assert "--no-such-option" in lines[-1]


WAITING: Final = {"pipeline archive", "pipeline replay", "pipeline redrive"}
"""Verbs that go on for a while when nobody answers."""


@pytest.mark.parametrize("verb", ASKING)
def test_verb_exits_with_4_where_no_nameserver_answers(verb: str) -> None:
    words = f"{verb} {WITHOUT_NAMES[verb] if verb in WITHOUT_NAMES else MISSING[verb][0]}"
    if verb in WAITING:
        words += " --retry-timeout 1s"
    for nameserver in (f"127.0.0.1:{free_port()}", "no-host.invalid:9876"):
        code, lines = told(words, nameserver)
        assert code == 4, lines
        assert lines[-1].startswith("ternmq: ")
        assert f": {nameserver}: " in lines[-1]
        # What gRPC tells of a name that it cannot resolve has its own fields in brackets.
        assert "[" not in lines[-1]


WITHOUT_BROKERS: Final[dict[str, int]] = {
    "topic list": 0,
    "dlq list": 0,
    "cluster list": 0,
    "broker status": 0,
    "pipeline report": 0,
    "cluster status": 1,
    "user create ada": 1,  # nobody confirms that it becomes administrator
    "user list": 0,
    "user deny-certificate --serial 1f": 0,
    "acl test ada publish topic:there": 0,
}
"""Exit codes where no broker is registered; 3 for every verb and words that are not here."""


def test_verb_exits_with_3_where_no_broker_is_registered(tmp_path: Path) -> None:
    verbs = (verb for verb in ASKING if not verb.startswith("pipeline"))  # which start Spark
    lines = {
        f"{verb} {WITHOUT_NAMES.get(verb) or [*MISSING[verb], ''][0]}".strip() for verb in verbs
    }
    with running_nameserver(tmp_path) as asked:
        for words in lines | {*WITHOUT_BROKERS, "offset show", "stats all"}:
            code, told_lines = told(words, asked.nameserver)
            assert code == WITHOUT_BROKERS.get(words, 3), (words, told_lines)


def help_of(verb: str) -> str:
    """Return the help of a verb, its line breaks taken out."""
    done = CliRunner().invoke(ternmq, [*verb.split(), "--help"])
    assert done.exit_code == 0
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_names_no_bounds_of_machine_integers(verb: str) -> None:
    assert re.search(r"[0-9]{8,}", help_of(verb)) is None


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_time_names_its_zone(verb: str) -> None:
    text = help_of(verb)
    assert text.count("in UTC unless it has an offset") == len(re.findall(r"[ |]TIME ", text))
