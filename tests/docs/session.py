"""The session shown in the documentation: real commands on a real table.

Comments precede the blocks: `<!-- output: NAME -->` the output of a command, `<!-- file: PATH -->` the text of a
file of the repository. `make outputs` renews them; tests compare them with current outputs and files.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.processes import PATIENCE_S, Installation, Outcome, amoro, install, wait_until

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: A comment, the fence below it and its content, with their indentation.
SHOWN = re.compile(r"^( *)<!-- (output|file): (\S+) -->\n *```\w+\n(.*?)\n *```$", re.MULTILINE | re.DOTALL)
HOME = "/home/me"  # stands for the temporary directory
TABLE = "shop.db.orders"
SELECT = f"SELECT region, count(*) AS orders, sum(amount) AS amount FROM {TABLE} GROUP BY region ORDER BY region"
RETURNS = "shop.db.returns"

#: Name of an output, and its command. `{process}` is the id of an earlier output.
WITHOUT_SERVICE = (
    ("doctor", "amoro doctor"),
    ("plan", f"amoro plan {TABLE} --explain"),
    ("dry-run", f"amoro optimize {TABLE} --type full --dry-run"),
    ("optimize", f"amoro optimize {TABLE}"),
    ("verify", f"amoro verify {TABLE}"),
    ("nothing-to-do", f"amoro optimize {TABLE}"),
    ("not-found", "amoro optimize shop.db.order"),
    ("usage", "amoro optimize shop.db.orders --type small"),
    ("api", "python api.py"),
)
WITH_SERVICE = (
    ("table-enable", f"amoro table enable {TABLE}"),
    ("table-show", f"amoro table show {TABLE}"),
    ("table-health", f"amoro table health {TABLE}"),
    ("sql", f"amoro sql -e '{SELECT}'"),
    ("table-files", f"amoro table files {TABLE} --limit 3"),
    ("table-snapshots", f"amoro table snapshots {TABLE} --limit 3"),
    ("table-properties", f"amoro table properties {TABLE}"),
    ("table-set", f"amoro table set {TABLE} self-optimizing.quota=0.2 --dry-run"),
    ("optimize-wait", f"amoro optimize {TABLE} --type full --force --wait"),
    ("optimize-json", f"amoro optimize {TABLE} --wait -o json"),
    ("table-list", "amoro table list"),
    ("process-list", "amoro process list --limit 2"),
    ("process-show", "amoro process show {process}"),
    ("task-list", "amoro task list {process}"),
    ("optimizer-list", "amoro optimizer list"),
    ("status", "amoro status"),
    ("catalog-list", "amoro catalog list"),
    ("group-create", "amoro group create nightly"),
    ("group-list", "amoro group list"),
    ("token-create", "amoro token create ci --role operator"),
    ("token-list", "amoro token list"),
    ("token-revoke", "amoro token revoke ci"),
    ("state-check", "amoro state check"),
    ("state-backup", f"amoro state backup {HOME}/amoro-backup.db"),
    ("table-block", f"amoro table block {TABLE} --for 1h --reason 'month-end report'"),
    ("table-blockers", f"amoro table blockers {TABLE}"),
    ("table-disable", f"amoro table disable {TABLE}"),
    ("refused", f"amoro optimize {TABLE} --type full"),
    ("returns", "python returns.py"),
    ("returns-enable", f"amoro table enable {RETURNS}"),
    ("returns-processes", f"amoro process list --table {RETURNS}"),
    ("returns-show", f"amoro table show {RETURNS}"),
)
#: Commands that run after the processes have ended.
AFTER_A_WHILE = ("returns-processes",)


@dataclass(frozen=True, slots=True)
class Output:
    """A command with its output."""

    name: str
    text: str
    status: int


def session(directory: Path) -> Iterator[Output]:
    """Every output of the documentation, from a session in the directory."""
    installation = install(directory, settings="")
    try:
        (directory / ".pyiceberg.yaml").write_text(_here((DOCS / "examples/pyiceberg.yaml").read_text(), directory))
        yield _run("orders", "python orders.py", installation)
        for name, command in WITHOUT_SERVICE:
            yield _run(name, command, installation)
        (installation.home / "amoro.yaml").write_text("terminal.enabled: true\n")
        started = installation.up("--threads", "1")
        line = started.wait_for("amoro listens on").replace(str(installation.home), f"{HOME}/.amoro")
        yield Output("up", f"$ amoro up\n{re.sub(':[0-9]+,', ':1261,', line)}\n", 0)
        process = ""
        for name, command in WITH_SERVICE:
            if "{process}" in command:
                process = process or installation.ask("process", "list")["processes"][0]["process_id"]
                command = command.format(process=process)
            if name in AFTER_A_WHILE:
                wait_until(lambda: _is_idle(installation, RETURNS), f"{RETURNS} was optimized")
            yield _run(name, command, installation)
    finally:
        installation.close()


def _is_idle(installation: Installation, table: str) -> bool:
    """Whether a process of the table was committed, and the table was refreshed since."""
    shown = installation.ask("table", "show", table)
    is_seen = shown["status"] == "idle" and shown["status_reason"].startswith("nothing to do")
    return is_seen and bool(installation.ask("process", "list", "--table", table)["processes"])


def _run(name: str, command: str, installation: Installation) -> Output:
    directory = installation.directory
    words = [_here(word.strip("'"), directory) for word in re.findall(r"'[^']*'|\S+", command)]
    environment = {**installation.environment, "COLUMNS": "110", "PYTHONIOENCODING": "utf-8"}
    ended = (_python if words[0] == "python" else _amoro)(words[1:], environment, directory)
    shown = ended.stdout.replace(str(installation.home), f"{HOME}/.amoro").replace(str(directory), HOME)
    return Output(name, f"$ {command}\n{shown}", ended.status)


def _amoro(arguments: Sequence[str], environment: Mapping[str, str], directory: Path) -> Outcome:
    return amoro(arguments, environment, directory, merged=True)


def _python(arguments: Sequence[str], environment: Mapping[str, str], directory: Path) -> Outcome:
    """Runs an example of the documentation."""
    ended = subprocess.run(
        [sys.executable, str(DOCS / "examples" / arguments[0])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=directory,
        env=environment,
        timeout=PATIENCE_S,
        encoding="utf-8",
    )
    return Outcome(ended.returncode, ended.stdout, "")


def _here(text: str, directory: Path) -> str:
    return text.replace(HOME, str(directory))


#: Values that differ between runs, and their placeholders in comparisons.
_VARYING = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"(?<![-\w])[0-9a-f]{8}(?![-\w])", "<id>"),
    (r"\bamo_[\w-]+", "<token>"),
    # A snapshot id may be as long as a checksum, and a checksum may have digits only.
    (r"\b([0-9a-f]{16}|[0-9]{12,19})\b", "<snapshot or checksum>"),
    (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+(Z|\+00:00| UTC)?", "<time>"),
    (r"\b[0-9]{2}:[0-9]{2}(:[0-9]{2})?\b", "<time>"),
    (r"\b[0-9]+(\.[0-9]+)? ?([kMGT]?i?B)(/s)?\b", "<size>"),
    (r'"[a-z_]*(bytes|duration_ms)[a-z_]*": [0-9]+', "<measure>"),
    (r"\b[0-9]+(\.[0-9]+)? ?(ms|s|m|min|h|d)\b", "<duration>"),
    (r"127\.0\.0\.1:[0-9]+", "<address>"),
    (r"\b(pid|PID)\b[ =:]*[0-9]+", "<pid>"),
    (r"\b3\.[0-9]+\.[0-9]+\b( \(older [^)]*\))?", "<version>"),
    (r"(?<=/)[\w.-]+\.(parquet|avro|metadata\.json)\b", "<file>"),
    (r"[ \t]+", " "),
    (r"-{2,}|─{2,}|━{2,}", "-"),
)


def normalised(text: str) -> list[str]:
    """The lines of an output with placeholders for values that differ between runs."""
    for pattern, kind in _VARYING:
        text = re.sub(pattern, kind, text)
    return [line.strip() for line in text.splitlines()]


def shown(kind: str) -> Iterator[tuple[Path, str, str]]:
    """Every shown output or file: page, name and text."""
    for page in sorted(DOCS.rglob("*.md")):
        for indent, of, name, text in SHOWN.findall(page.read_text(encoding="utf-8")):
            if of == kind:
                yield page, name, "\n".join(line.removeprefix(indent) for line in text.splitlines()) + "\n"


def record(directory: Path) -> None:
    """Write current outputs and files into the pages."""
    outputs = {output.name: output.text for output in session(directory)}

    def replaced(match: re.Match[str]) -> str:
        indent, kind, name, old = match.groups()
        new = outputs[name] if kind == "output" else (ROOT / name).read_text(encoding="utf-8")
        text = "\n".join(f"{indent}{line}".rstrip() for line in new.rstrip("\n").splitlines())
        return match[0].replace(f"\n{old}\n", f"\n{text}\n")

    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(SHOWN.sub(replaced, text), encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.umask(0o077)
        record(Path(place))
