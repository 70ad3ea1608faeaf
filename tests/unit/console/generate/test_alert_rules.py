import re

import pytest

from ternmq_console.generate.alert_rules import (
    AlertRule,
    AlertThresholds,
    alert_rules,
    rules_text,
)
from ternmq_model.errors import ConfigError
from ternmq_runtime.settings.reference import describe
from tests.support.pages import DOCS

RULES = alert_rules(AlertThresholds(), "ternmq")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_alert_has_a_runbook_with_its_cause_and_what_to_do(rule: AlertRule) -> None:
    page = (DOCS / "howto" / "observe.md").read_text("utf-8")
    below = page.partition(f"\n### {rule.name}\n")[2].partition("\n#")[0]
    assert len(below.split()) > 20


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_alert_names_the_labels_that_its_expression_keeps(rule: AlertRule) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", rule.summary + rule.description))
    if kept := re.search(r"by \(([^)]*)\)", rule.value):
        assert named <= set(kept[1].split(", "))


def test_page_has_every_threshold_with_its_default() -> None:
    page = (DOCS / "howto" / "observe.md").read_text("utf-8")
    for one in describe({"alerts": AlertThresholds}):
        assert f"| `{one.name}` | `{one.default}` | {one.doc} |\n" in page


def test_alerts_wake_somebody_or_wait_for_the_day() -> None:
    assert {rule.severity for rule in RULES} == {"critical", "warning"}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_thresholds_are_in_the_expressions() -> None:
    thresholds = AlertThresholds(
        lag_s=11,
        flush_behind_bytes=12,
        slave_behind_bytes=13,
        disk_full_s=14,
        disk_free_bytes=15,
        check_backs=16,
        loop_pause_s=0.17,
    )
    compared = {rule.condition for rule in alert_rules(thresholds, "ternmq")}
    assert compared >= {"> 11", "> 12", "> 13", "< 14", "< 15", "> 16", "> 0.17"}


def test_negative_threshold_is_refused() -> None:
    with pytest.raises(ConfigError, match="disk_free_bytes"):
        AlertThresholds(disk_free_bytes=-1)


def test_hostile_name_of_a_job_stays_a_text() -> None:
    text = rules_text(alert_rules(AlertThresholds(), 'a"} or vector(1) #\n'), "https://x")
    assert r'expr: "up{job=\"a\\\"} or vector(1) #\\n\"} == 0"' in text


def test_rule_links_its_runbook() -> None:
    text = rules_text(RULES[:1], "https://wiki/ternmq")
    assert text.endswith('runbook_url: "https://wiki/ternmq#ternmqprocessdown"\n')
