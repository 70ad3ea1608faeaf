"""Write the Python code of the contracts: `make protos`.

The files under `ternmq/v1` become `ternmq_protos/v1/*_pb2.py` with typing stubs, and
`*_pb2_grpc.py` for those who call the services with grpc's own stubs. The generator is pinned to
the oldest supported release, because generated code runs on its own version of protobuf and the
next major one.
"""

import re
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parent
TARGET = ROOT / "ternmq_protos" / "v1"


def generate(target: Path) -> None:
    """Write the generated modules into the folder `target`."""
    sources = sorted((ROOT / "ternmq" / "v1").glob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        status = subprocess.call(
            [
                sys.executable,
                "-m",
                "grpc_tools.protoc",
                f"-I{ROOT}",
                f"-I{files('grpc_tools') / '_proto'}",
                f"--python_out={scratch}",
                f"--pyi_out={scratch}",
                f"--grpc_python_out={scratch}",
                *(str(source.relative_to(ROOT)) for source in sources),
            ],
            cwd=ROOT,
        )
        if status:
            raise SystemExit(f"protoc failed with status {status}")
        target.mkdir(parents=True, exist_ok=True)
        for made in sorted((Path(scratch) / "ternmq" / "v1").iterdir()):
            # protoc names modules after the files' folders, which would be the users' package.
            text = made.read_text()
            text = re.sub(r"\bfrom ternmq\.v1 import", "from ternmq_protos.v1 import", text)
            (target / made.name).write_text(text)
    (target / "__init__.py").write_text("")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        generate(Path(sys.argv[1]))
    else:
        generate(TARGET)
        checked = subprocess.run([sys.executable, ROOT / "breaking.py", "--refresh"], check=False)
        sys.exit(checked.returncode)
