"""Translation of hints for Python users: commands and options of the command line become calls and parameters.

A hint is written once, where its reason is known, in terms of the command line. This module maps its commands to calls;
a command without a call is kept, to be run in a shell.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import isfunction
from typing import Any, ParamSpec, TypeVar

from amoro_cli.output import Block
from amoro_core.errors import AmoroError
from amoro_core.records import record

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
Class = TypeVar("Class", bound=type)

#: Options of the command line and their Python parameters; those that end in = take a value.
OPTIONS: Mapping[str, str] = {
    "--action": "action=",
    "--address": "address=",
    "--after": "after=",
    "--before": "before=",
    "--ca-file": "ca_file=",
    "--catalog": "catalog=",
    "--certificate-file": "AMORO_CERTIFICATE_FILE",
    "--explain": "explain()",
    "--force": "force=True",
    "--confirm": "confirm=",
    "--dry-run": "dry_run=True",
    "--home": "home=",
    "--key-file": "AMORO_KEY_FILE",
    "--limit": "limit=",
    "--queries": "queries=",
    "--spark-event-log": "spark_event_log=",
    "--status": "status=",
    "--table": "table=",
    "--timeout": "timeout=",
    "--token-file": "token=",
    "--type": "type=",
    "--wait": "wait=True",
    "--where": "where=",
}
_SENTENCES: Mapping[str, str] = {
    "Run it again with --debug for the traceback, and report it.": "Report it, with the traceback.",
    "See the command's --help.": "See the help() of what was called.",
    ": see -o json": ": see its partitions",
}
_OPTION = rf"(?<![\w-])(?:--type (?:minor|major|full)|{'|'.join(sorted(OPTIONS, reverse=True))})(?![\w-])"
_RUN_OF_OPTIONS = re.compile(rf"{_OPTION}(?: {_OPTION})*")
_WORD = re.compile(r" ((?:'[^']*'|`[^`]*`|[^\s'`])+)")
_STOPS = ".,;:)"


@record
class Voice:
    """The Python calls of commands.

    A command's argument is in capitals; `{}` in the call takes it and the options. `first`, unless "", replaces the
    argument.
    """

    calls: Mapping[str, str]
    first: str = ""

    def said(self, text: str) -> str:
        """A hint of the command line in this voice; text already in it is kept."""
        for sentence, words in _SENTENCES.items():
            text = text.replace(sentence, words)
        known = {re.sub(r" [A-Z]+$", "", command): (command, call) for command, call in self.calls.items()}
        parts: list[str] = []
        position = 0
        for found in re.finditer(rf"amoro (?:({'|'.join(sorted(known, reverse=True))})(?![\w|-])|[a-z|]+)", text):
            if found.start() < position:
                continue
            command, call = known.get(found[1], ("", ""))
            arguments, end = self._arguments(text, found.end(), takes_one=command != found[1])
            explained = OPTIONS["--explain"] in arguments
            given = ", ".join(word for word in arguments if word != OPTIONS["--explain"])
            said = call.replace("{}", given) if call else text[found.start() : end]
            parts += [_options_in(text[position : found.start()]), said]
            parts += [f".{OPTIONS['--explain']}"] if explained else []
            position = end
        return "".join([*parts, _options_in(text[position:])])

    def blocks(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """Output blocks of the command line, with their sentences in this voice."""
        return tuple(self.said(block) if isinstance(block, str) else block for block in blocks)

    def retold(self, error: AmoroError) -> None:
        """Translate the error's hint to this voice, and add it to the traceback."""
        error.hint = self.said(error.hint or error.remedy)
        note = f"Hint: {error.hint}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)

    def _arguments(self, text: str, position: int, *, takes_one: bool) -> tuple[list[str], int]:
        """The arguments of a command as Python source, and the offset of their end in the text."""
        given: list[str] = []
        while word := _WORD.match(text, position):
            value = word[1].rstrip(_STOPS)
            if value in OPTIONS:
                given.append(OPTIONS[value])
            elif given and given[-1].endswith("="):
                given[-1] += _literal(value)
            elif takes_one and not given:
                given.append(self.first or _literal(value))
            else:
                break
            position = word.start(1) + len(value)
            if value != word[1]:
                break
        return given, position


#: For users of a client.
CLIENT = Voice(
    {
        "catalog list": "client.catalogs()",
        "cluster learn TABLE": "client.learn({})",
        "cluster suggest TABLE": "client.suggest({})",
        "optimize TABLE": "client.optimize({})",
        "optimizer list": "client.optimizers()",
        "plan TABLE": "client.plan({})",
        "process cancel ID": "client.cancel({})",
        "process list": "client.processes({})",
        "process show ID": "client.process({})",
        "table disable TABLE": "client.disable({})",
        "table enable TABLE": "client.enable({})",
        "table list": "client.tables({})",
        "table maintain TABLE": "client.maintain({})",
        "table show TABLE": "client.table({})",
        "task list PROCESS": "client.process({}).tasks",
        "undo PROCESS": "client.undo({})",
        "verify TABLE": "client.verify({})",
    }
)
#: For users of a pyiceberg table.
TABLE = Voice(
    {
        "optimize TABLE": "optimize({})",
        "plan TABLE": "plan({})",
        "table snapshots TABLE": "table.snapshots()",
        "verify TABLE": "verify({})",
    },
    first="table",
)


def told_in(voice: Voice) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """A decorator that translates the hints of a function's errors to that voice."""

    def told(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
        @wraps(function)
        def call(*given: Parameters.args, **named: Parameters.kwargs) -> Answer:
            try:
                return function(*given, **named)
            except AmoroError as error:
                voice.retold(error)
                raise

        return call

    return told


def methods_told(kind: Class) -> Class:
    """A class decorator that translates the hints of all public methods' errors to the instance's voice."""
    for name, function in list(vars(kind).items()):
        if isfunction(function) and not name.startswith("_"):
            setattr(kind, name, _told(function))
    return kind


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        return told_in(self.voice)(method)(self, *given, **named)

    return call


def _options_in(text: str) -> str:
    """The text with options outside of commands replaced by parameters."""

    def parameters(found: re.Match[str]) -> str:
        words = re.sub(r"(--type) (\w+)", r"\1='\2'", found[0]).split(" ")
        return ", ".join(_parameter(word) for word in words)

    return _RUN_OF_OPTIONS.sub(parameters, text)


def _parameter(word: str) -> str:
    name, given, value = word.partition("=")
    return f"{OPTIONS[name]}{value}" if given else OPTIONS[name].removesuffix("=")


def _literal(value: str) -> str:
    """A value as Python source; a placeholder such as TABLE is kept."""
    plain = shlex.split(value)[0] if value.startswith("'") else value
    return plain if plain.isupper() and plain.isalpha() else repr(plain)
