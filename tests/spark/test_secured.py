"""Jobs of the pipeline as commands, on a cluster with TLS and users."""

import asyncio
import json
import os
import subprocess
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ternmq import ClientConfig, Credentials, Message, Producer
from ternmq_remoting.tls import CREDENTIALS_VARIABLE
from tests.support.certificates import Authority, authority, credentials_file, tls_words
from tests.support.processes import SOON_S, TERNMQ, run_ternmq, running_cluster
from tests.support.users import Users, token_of

SPARK: Final = ("--master", "local[1]", "--conf", "spark.driver.memory=1g", "--json")
GRANTS: Final = (
    "subscribe topic:orders",
    "publish topic:copies",
    "subscribe topic:copies",
    "publish group:ternmq-spark",
)


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    return authority(tmp_path / "certificates")


@pytest.fixture
def nameserver(tmp_path: Path, trusted: Authority) -> Generator[str]:
    with running_cluster(tmp_path, ("broker-a",), words_of=partial(tls_words, trusted)) as address:
        users = Users()
        users.add("broker-a", "replicate cluster", subjects=("CN=broker-a",))
        users.add("lake", *GRANTS)
        users.allow("root", "publish *")
        root = credentials_file(trusted, "root", token_of("root")[0])
        asyncio.run(users.put_at(address, Credentials.from_file(root)))
        for topic in ("orders", "copies", "secrets"):
            named = ("--nameserver", address)
            run_ternmq("topic", "create", topic, *named, credentials=root)
        asyncio.run(fill(address, root))
        yield address


async def fill(nameserver: str, root: Path) -> None:
    client = ClientConfig(nameservers=(nameserver,), credentials=Credentials.from_file(root))
    async with Producer("fill", client=client) as producer:
        for topic in ("orders", "secrets"):
            await producer.send_many([Message(topic, b"%d" % number) for number in range(30)])


def test_jobs_do_what_their_user_may(tmp_path: Path, nameserver: str, trusted: Authority) -> None:
    credentials = credentials_file(trusted, "lake", token_of("lake")[0])
    lake, named = str(tmp_path / "lake"), ("--nameserver", nameserver, *SPARK)
    done = run_ternmq(
        "pipeline", "archive", "orders", "--to", lake, *named, credentials=credentials
    )
    assert json.loads(done)["rows"] == 30
    replay = ("pipeline", "replay", "copies", "--parquet", lake, "--checkpoint", f"{lake}-kept")
    done = run_ternmq(*replay, *named, credentials=credentials)
    assert json.loads(done)["rows"] == 30
    refused = subprocess.run(
        [*TERNMQ, "pipeline", "archive", "secrets", "--to", f"{lake}-2", *named],
        env=os.environ | {CREDENTIALS_VARIABLE: str(credentials)},
        capture_output=True,
        text=True,
        timeout=SOON_S,
    )
    assert refused.returncode == 3
    assert "topic 'secrets' is on no broker" in refused.stderr  # for whom may not know of it
    assert token_of("lake")[0] not in refused.stderr + refused.stdout
