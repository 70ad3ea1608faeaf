import subprocess
import sys

PROGRAM = """
import asyncio, resource
from contextlib import asynccontextmanager
from ternmq_runtime.service import run_until_signalled

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))

@asynccontextmanager
async def service():
    yield

async def main():
    stopping = asyncio.Event()
    await run_until_signalled(service(), on_ready=stopping.set, stopping=stopping)

asyncio.run(main())
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_service_may_open_as_many_files_as_the_system_allows() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "(256, 256)"
