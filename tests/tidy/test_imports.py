from pathlib import Path

import pytest

from tests.tidy.import_rules import ARROWS, ONE_HOME, RULES, reachable
from tests.tidy.source import lines_broken
from tools.project import PACKAGES, ROOT


@pytest.mark.parametrize(
    ("rule", "file", "text", "lines"),
    [
        ("imports_are_absolute", "model/ternmq_model/x.py", "from . import y\nimport z", [1]),
        (
            "imports_follow_the_arrows",
            "producer/ternmq_producer/x.py",
            "import ternmq_client\nimport ternmq_model.names\nfrom ternmq_consumer.push import Y\n"
            "def f():\n    import ternmq_store\n",
            [3, 5],
        ),
        (
            "imports_follow_the_arrows",
            "consumer/ternmq_consumer/x.py",
            "from ternmq_producer import Producer\nimport ternmq\nimport ternmq_remoting\n",
            [1, 2],
        ),
        ("imports_follow_the_arrows", "store/ternmq_store/x.py", "import ternmq_runtime\n", [1]),
        (
            "third_parties_are_dependencies",
            "broker/ternmq_broker/x.py",
            "import grpc\nimport numpy as np\nimport rich\nimport yaml\nimport tests.support\n",
            [1, 3, 4, 5],
        ),
        (
            "modules_stay_home",
            "store/ternmq_store/log/commit_log.py",
            "import mmap\nfrom threading import Thread\nimport concurrent.futures\nimport os\n",
            [1, 2, 3],
        ),
        ("modules_stay_home", "tests/unit/x.py", "import threading\nimport pickle\n", [2]),
        ("store_is_synchronous", "store/ternmq_store/x.py", "import os\nimport asyncio\n", [2]),
        (
            "pure_modules_do_nothing",
            "model/ternmq_model/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from random import Random\n"
            "import time\nopen('x')\n",
            [4, 5],
        ),
        (
            "pure_modules_do_nothing",
            "broker/ternmq_broker/x.py",
            '"""What may be read. Pure."""\nimport logging\n',
            [2],
        ),
        ("pure_modules_do_nothing", "broker/ternmq_broker/x.py", '"""Reads."""\nimport os\n', []),
        (
            "unit_tests_run_no_whole_service",
            "tests/unit/broker/test_x.py",
            "from ternmq_broker.broker import Broker\nfrom ternmq import Message, Producer\n"
            "from ternmq_broker import topics\nfrom tests.support import brokers\n"
            "from tests.support.simulated_cluster import SimulatedCluster\n"
            "from tests.support.stores import SMALL\nfrom ternmq import BlockingProducer\n",
            [1, 2, 4, 5, 7],
        ),
        (
            "unit_tests_run_no_whole_service",
            "tests/simulation/broker/test_x.py",
            "from ternmq_broker.broker import Broker\n",
            [],
        ),
    ],
)
def test_broken_rule_is_found_at_its_line(
    rule: str, file: str, text: str, lines: list[int]
) -> None:
    named = {candidate.__name__: candidate for candidate in RULES}
    assert lines_broken(named[rule], file, text) == lines


def test_table_has_every_role_and_no_cycle() -> None:
    assert set(ARROWS) == set(PACKAGES)
    for role in ARROWS:
        assert role not in reachable(role)


def test_producer_and_consumer_never_meet() -> None:
    assert "consumer" not in reachable("producer")
    assert "producer" not in reachable("consumer")


@pytest.mark.parametrize("place", [place for homes in ONE_HOME.values() for place in homes])
def test_every_place_in_the_tables_exists(place: str) -> None:
    assert (ROOT / place).exists()


def test_every_role_is_a_folder_with_its_package() -> None:
    folders = {path.parent.parent for path in Path(ROOT).glob("*/ternmq_*/__init__.py")}
    assert {path.name for path in folders} | {"ternmq"} == set(PACKAGES)
