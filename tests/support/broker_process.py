"""A broker in a process of its own, to be killed. Run as a module, it is that process."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ternmq_broker import Broker, BrokerConfig
from ternmq_model.address import Address, parse_address
from ternmq_remoting.system import system_environment
from ternmq_runtime.service import run_until_signalled
from ternmq_store.config import FlushMode, StoreConfig

STORE = StoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_units=1000,
    index_slots=1000,
    index_entries=4000,
)


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A running broker."""

    process: subprocess.Popen[str]
    address: Address

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@contextlib.contextmanager
def broker_process(
    data: Path, mode: FlushMode = FlushMode.SYNC, **store: int
) -> Generator[BrokerProcess]:
    """Run a broker on `data` until the block ends, then end it in order if it still runs.

    Args:
        data: Its directory.
        mode: When it acknowledges.
        store: Settings of the store other than `STORE`.
    """
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.support.broker_process", str(data), mode.value]
    command.append(json.dumps(store))
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": ""}
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        assert line, f"the broker ended with {process.wait(10)}"
        yield BrokerProcess(process, parse_address(line, setting="address"))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(20)
        process.stdout.close()


async def main(data: Path, mode: FlushMode, store: dict[str, Any]) -> int:
    """Serve until a signal comes."""
    config = BrokerConfig(data=data, port=0, nameservers=(), flush_mode=mode)
    async with system_environment() as env:
        broker = Broker(config, replace(STORE, **store), env)
        return await run_until_signalled(broker, on_ready=lambda: print(broker.address, flush=True))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), FlushMode(sys.argv[2]), json.loads(sys.argv[3]))))
