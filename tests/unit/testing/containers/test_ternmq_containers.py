from collections.abc import Callable
from typing import Any

import pytest

from ternmq_model.errors import UsageError
from ternmq_testing.containers.ternmq_containers import TernMQCluster, TernMQContainer


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"brokers": 0}, "brokers=0 must be a whole number from 1 to 26"),
        ({"brokers": "2"}, "brokers='2' must be"),
        ({"slaves": -1}, "slaves=-1 must be a whole number of at least 0"),
        ({"flush": "SYNC"}, "flush='SYNC' must be 'sync' or 'async'"),
        ({"colour": "red"}, "no setting 'colour'"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        TernMQCluster(**arguments)


@pytest.mark.parametrize("start", [TernMQContainer, lambda: TernMQCluster().start()])
def test_missing_engine_is_named(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], object]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "nowhere")
    with pytest.raises(UsageError, match="the Docker engine does not answer"):
        start()
