"""Generate the stubs of `proto/amoro/v1` into a directory (default: `amoro_core/protocol`)."""

import os
import re
import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")


def generate(target: Path) -> None:
    """Write modules and type stubs for every .proto file into the target directory."""
    sources = sorted((ROOT / "amoro" / "v1").glob("*.proto"))
    well_known = Path(protoc.__file__).parent / "_proto"
    # protoc looks for its plugins there; they stand beside the interpreter.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    status = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{well_known}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            f"--mypy_out=quiet:{target}",
            f"--mypy_grpc_out=quiet:{target}",
            *(str(source) for source in sources),
        ]
    )
    if status != 0:
        raise SystemExit(status)
    for made in (target / "amoro" / "v1").iterdir():
        # protoc names the package after the .proto's path; ours lives in amoro_core.protocol.
        text = made.read_text()
        text = re.sub(r"\bfrom amoro\.v1 import", "from amoro_core.protocol import", text)
        text = re.sub(r"\bamoro\.v1\.(\w+_pb2)", r"amoro_core.protocol.\1", text)
        text = re.sub(r"\bimport amoro\.v1\b", "import amoro_core.protocol", text)
        (target / made.name).write_text(text)
        made.unlink()
    (target / "amoro" / "v1").rmdir()
    (target / "amoro").rmdir()


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "amoro_core" / "protocol")
