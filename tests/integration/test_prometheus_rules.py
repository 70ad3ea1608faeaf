"""Alert rules as promtool sees them: when each fires, when it does not, and what it says."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq_console.generate.alert_rules import AlertThresholds, alert_rules, rules_text
from ternmq_console.generate.board_queries import mean, of_process, quantile, sum_once
from tests.support.prometheus import checked

RULES: Final = {rule.name: rule for rule in alert_rules(AlertThresholds(), "ternmq")}
URL: Final = "https://wiki/ternmq"
NODE: Final = {"cluster": "c", "node_type": "broker", "node_id": "broker-a"}
BROKER: Final = NODE | {"instance": "a:9464", "job": "ternmq"}
SLAVE: Final = NODE | {"instance": "a-slave:9464", "job": "ternmq"}
OTHER: Final = BROKER | {"node_id": "broker-b", "instance": "b:9464"}
NAMES: Final = {"node_type": "nameserver", "node_id": "ns:9876", "instance": "ns:1"}
PROCESS: Final = '{instance="a:9464",job="ternmq",node_id="broker-a",node_type="broker"}'
ORDERS: Final = {"consumer_group": "shop", "topic": "orders"}
USERS: Final = {"queue_id": "0", "is_system": "false"}
GIB: Final = 1 << 30
LAG: Final = "ternmq_consumer_queue_lag_seconds"
DEAD: Final = "rocketmq_send_to_dlq_messages_total"
HIDDEN: Final = "ternmq_metrics_hidden_series"
ENDLESS: Final = " ".join(["+Inf"] * 12)


def series(name: str, values: str, labels: dict[str, str]) -> dict[str, str]:
    """Return a series of one value a minute: `1x5` stays 1 for 5 minutes, `_` is no sample."""
    told = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{told}}}", "values": values}


@dataclass(frozen=True, slots=True)
class Case:
    """Course of an alert: quiet until a minute, on from the next, and quiet again later."""

    alert: str
    inputs: Sequence[dict[str, str]]
    quiet_min: int
    """Last minute without the alert, though its expression may be true already."""

    labels: dict[str, str]
    summary: str
    description: str
    over_min: int | None = None
    """Minute when it is over; None = it is not tried."""

    def test(self) -> dict[str, Any]:
        """Return the case as promtool has it."""
        on = {
            "exp_labels": self.labels | {"severity": RULES[self.alert].severity},
            "exp_annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{URL}#{self.alert.lower()}",
            },
        }
        times = {self.quiet_min: [], self.quiet_min + 1: [on]}
        if self.over_min is not None:
            times[self.over_min] = []
        return {
            "name": self.alert,
            "interval": "1m",
            "input_series": self.inputs,
            "alert_rule_test": [
                {"eval_time": f"{minute}m", "alertname": self.alert, "exp_alerts": alerts}
                for minute, alerts in times.items()
            ],
        }


CASES: Final = [
    Case(
        "TernMQProcessDown",
        [series("up", "1 0 0 0 1", {"job": "ternmq", "instance": "a:9464"})],
        quiet_min=1,
        labels={"job": "ternmq", "instance": "a:9464"},
        summary="a:9464 does not answer",
        description="Prometheus has not reached the metrics port of a broker or NameServer.",
        over_min=4,
    ),
    Case(
        "TernMQNotScraped",
        [series("up", "1x20", {"job": "node"}), series("up", "_x9 1x9", {"job": "ternmq"})],
        quiet_min=4,
        labels={"job": "ternmq"},
        summary="Prometheus has no target of TernMQ",
        description="No target has the job ternmq, so no other alert can fire.",
        over_min=10,
    ),
    Case(
        "TernMQNoMaster",
        [
            series(
                "ternmq_nameserver_without_master",
                "_ 1 1 1 stale",
                NAMES | {"cluster": "c", "broker": "broker-a"},
            ),
            series(
                "ternmq_nameserver_without_master",
                "0x5",
                NAMES | {"cluster": "c", "broker": "broker-b"},
            ),
        ],
        quiet_min=1,
        labels={"cluster": "c", "broker": "broker-a"},
        summary="broker-a has no master",
        description="The members of this name accept no messages until one is the master.",
        over_min=4,
    ),
    Case(
        "TernMQConsumerLag",
        [
            series(LAG, "310+60x9 0x9", BROKER | ORDERS | USERS),
            series(LAG, "900x20", BROKER | ORDERS | {"is_system": "true"}),
            series(LAG, "1x20", BROKER | ORDERS | USERS | {"queue_id": "1"}),
            series(LAG, "310+60x9 0x9", SLAVE | ORDERS | USERS),
            series(LAG, "900x20", SLAVE | ORDERS | USERS | {"topic": "cut-off"}),
            series("ternmq_broker_is_master", "1x20", BROKER),
            series("ternmq_broker_is_master", "0x20", SLAVE),
        ],
        quiet_min=4,
        labels={"cluster": "c"} | ORDERS,
        summary="shop is behind on orders",
        description="The oldest waiting message is 10m 10s old.",
        over_min=10,
    ),
    Case(  # the first of a group at a broker, beside those of a time before any scrape
        "TernMQDeadLetters",
        [
            series("ternmq_build_info", "1x30", BROKER | {"version": "1"}),
            series(DEAD, "_x14 3x30", BROKER | ORDERS),
            series(DEAD, "7x44", BROKER | ORDERS | {"topic": "old"}),
            series(DEAD, "5x2 _x20 5x20", OTHER | ORDERS),
            series("ternmq_build_info", "1x2 _x20 1x20", OTHER | {"version": "1"}),
            series(DEAD, "5x2 _x20 5x20", OTHER | ORDERS | {"topic": "not-scraped"}),
        ],
        quiet_min=14,
        labels={"cluster": "c"} | ORDERS,
        summary="shop has new dead letters of orders",
        description="About 3 messages failed in each of their attempts in the last ten minutes.",
        over_min=25,
    ),
    Case(
        "TernMQDeadLetters",
        [
            series("ternmq_build_info", "1x50", BROKER | {"version": "1"}),
            series(DEAD, "1x19 11x30", BROKER | ORDERS),
        ],
        quiet_min=20,
        labels={"cluster": "c"} | ORDERS,
        summary="shop has new dead letters of orders",
        description="About 10 messages failed in each of their attempts in the last ten minutes.",
        over_min=32,
    ),
    Case(
        "TernMQCheckBacks",
        [series("ternmq_transaction_checks_total", "0+20x40 800x20", BROKER | {"topic": "orders"})],
        quiet_min=15,
        labels={"cluster": "c", "topic": "orders"},
        summary="Producers of orders lose their decisions",
        description="200 times in ten minutes a broker had to ask for the decision of a"
        " transaction.",
        over_min=51,
    ),
    Case(
        "TernMQDiskFullSoon",
        [
            series("ternmq_storage_time_to_full_seconds", f"7200x20 {ENDLESS}", BROKER),
            series("ternmq_storage_time_to_full_seconds", f"7200 {ENDLESS}", SLAVE),
        ],
        quiet_min=9,
        labels=BROKER,
        summary="The disk of broker-a (a:9464) will be full soon",
        description="At the rate of the last ten minutes it is full in 2h 0m 0s.",
        over_min=22,
    ),
    Case(
        "TernMQDiskLow",
        [
            series("ternmq_storage_free_bytes", f"{5 * GIB}x8 {50 * GIB}x9", BROKER),
            series("ternmq_storage_free_bytes", f"{50 * GIB}x20", SLAVE),
        ],
        quiet_min=4,
        labels=BROKER,
        summary="The disk of broker-a (a:9464) is nearly full",
        description="It refuses messages after 5GiB more.",
        over_min=9,
    ),
    Case(
        "TernMQFlushBehind",
        [series("rocketmq_storage_flush_behind_bytes", f"{GIB}x5 0x5", BROKER)],
        quiet_min=1,
        labels=BROKER,
        summary="The disk of broker-a (a:9464) does not keep up",
        description="1GiB of acknowledged or waiting messages are only in memory.",
        over_min=6,
    ),
    Case(
        "TernMQSlaveBehind",
        [
            series("ternmq_replica_behind_bytes", f"{GIB}x8 0x5", BROKER | {"replica": "1"}),
            series("ternmq_replica_behind_bytes", f"{GIB}x8 0x5", SLAVE | {"replica": "1"}),
            series("ternmq_replica_behind_bytes", "1x20", BROKER | {"replica": "2"}),
        ],
        quiet_min=4,
        labels={"cluster": "c", "node_id": "broker-a", "replica": "1"},
        summary="A slave of broker-a is behind",
        description="Replica 1 lacks 1GiB.",
        over_min=9,
    ),
    Case(
        "TernMQLoopPause",
        [
            series("ternmq_loop_pause_seconds_bucket", "0+60x30", BROKER | {"le": "0.2"}),
            series("ternmq_loop_pause_seconds_bucket", "0+90x30", BROKER | {"le": "1"}),
            series("ternmq_loop_pause_seconds_bucket", "0+90x30", BROKER | {"le": "+Inf"}),
            series("ternmq_loop_pause_seconds_bucket", "0+90x30", SLAVE | {"le": "0.2"}),
            series("ternmq_loop_pause_seconds_bucket", "0+90x30", SLAVE | {"le": "+Inf"}),
        ],
        quiet_min=10,
        labels=NODE | {"instance": "a:9464"},
        summary="broker broker-a (a:9464) is overloaded",
        description="One call of a hundred waits 976ms for its turn.",
    ),
    Case(
        "TernMQHiddenSeries",
        [
            series(HIDDEN, "_x2 12x12", BROKER | {"family": "rocketmq_messages_in"}),
        ],
        quiet_min=11,
        labels=BROKER | {"family": "rocketmq_messages_in"},
        summary="broker broker-a (a:9464) hides series of rocketmq_messages_in",
        description="12 series above metrics.series_max are summed under other, so alerts by topic"
        " and group miss them.",
    ),
]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(rules_text(list(RULES.values()), URL))
    return file


def test_rules_are_valid(rules: Path) -> None:
    assert f"{len(RULES)} rules found" in checked(
        "promtool", "check", "rules", "--lint-fatal", rules
    )


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == RULES.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_alert_fires_when_it_must_and_says_why(case: Case, rules: Path) -> None:
    file = rules.with_name("test.yaml")
    told = {"rule_files": [rules.name], "evaluation_interval": "1m", "tests": [case.test()]}
    file.write_text(json.dumps(told))
    checked("promtool", "test", "rules", file)


@pytest.mark.parametrize(
    ("expression", "labels", "value"),
    [
        (sum_once("lag", "", "topic"), '{topic="orders"}', 12),
        (of_process("cpu"), PROCESS, 3),
        (mean("size", "", "topic"), '{topic="orders"}', 50),
        (quantile(0.5, "size", "", "topic"), '{topic="orders"}', 50),
    ],
)
def test_query_of_a_board_has_the_right_value(
    expression: str, labels: str, value: float, tmp_path: Path
) -> None:
    topic = {"topic": "orders"}
    other = {"node_id": "broker-b", "instance": "b:9464"}
    told = {
        "interval": "1m",
        "input_series": [
            series("lag", "5x9", BROKER | topic),
            series("lag", "4x9", SLAVE | topic),
            series("lag", "7x9", BROKER | topic | other),
            series("ternmq_build_info", "1x9", BROKER | {"version": "1"}),
            series("cpu", "3x9", {"job": "ternmq", "instance": "a:9464"}),
            series("cpu", "4x9", {"job": "node", "instance": "a:9464"}),
            series("size_sum", "0+100x9", BROKER | topic),
            series("size_count", "0+2x9", BROKER | topic),
            series("size_bucket", "0+2x9", BROKER | topic | {"le": "100"}),
            series("size_bucket", "0+2x9", BROKER | topic | {"le": "+Inf"}),
        ],
        "promql_expr_test": [
            {
                "expr": expression.replace("$__rate_interval", "5m").replace("$node", ".*"),
                "eval_time": "9m",
                "exp_samples": [{"labels": labels, "value": value}],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [told]}))
    checked("promtool", "test", "rules", file)
