"""Mutation testing of one part of the code: `python -m tests.mutants [--part commit] [--sample 300] [--seed 1]`.

Draws a sample from all mutants of the part's modules (`tests.mutants.parts`), runs two at a time the tests that reach
them, and writes the part's page. What was not tried when the time is up counts neither way. Ends with 1 when less than
--least percent were killed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mutmut import __main__ as mutmut
from mutmut import configuration
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, setup_source_paths, walk_mutatable_files
from mutmut.utils.format_utils import (
    get_module_from_key,
    mangled_name_from_mutant_name,
    orig_function_and_class_names_from_key,
)
from mutmut.workers.isolation import ForkServerRunner

from tests.mutants import operators
from tests.mutants.page import KILLED, MEANINGS, Mutant, Run, change_of, read_meanings, render, sample, share_killed
from tests.mutants.parts import PARTS

WORK = Path("mutants")  # mutmut's own name for it
AT_A_TIME = 2
FEW = 12
_SUBMIT, _RUN_TESTS = ForkServerRunner.submit, PytestRunner.run_tests


def main() -> None:
    """Parse the command line, run, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=list(PARTS), default="commit")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=50.0, help="what is not tried by then is left out")
    parser.add_argument("--least", type=float, default=85.0, help="percent that must be killed")
    parser.add_argument("--module", default="", help="only modules whose name ends so; writes no page")
    parser.add_argument("--again", action="store_true", help="keep the kills of the last run, try the others")
    given = parser.parse_args()
    part = PARTS[given.part]
    if part.only_mutate:
        config = configuration.config()
        config.source_paths = [Path(one) for one in part.sources]
        config.resolved_mutated_source_paths = [(WORK / one).absolute() for one in part.sources]
        config.only_mutate, config.pytest_add_cli_args_test_selection = list(part.only_mutate), list(part.tests)
    run = _run(given)
    text = render(run, read_meanings(MEANINGS.read_text()), "make mutants", part)
    if given.module:
        print(text)
    else:
        part.page.write_text(text)
    share = share_killed(run.mutants)
    print(f"{len(run.tried)} of {len(run.mutants)} tried, {share:.1f} % killed, {len(run.survivors)} survived")
    sys.exit(share < given.least)


def _run(given: argparse.Namespace) -> Run:
    started = time.monotonic()
    if not given.again:
        shutil.rmtree(WORK, ignore_errors=True)
    names = _make_mutants(given.module)
    chosen = sample(names, given.sample, given.seed)
    known = _statuses()
    if left := [name for name in chosen if known[name][1] not in KILLED]:
        _try(left, given.minutes * 60 - (time.monotonic() - started))
    known = _statuses()
    mutants = tuple(_mutant(name, *known[name]) for name in chosen)
    made = {module: len(some) for module, some in names.items()}
    kept = WORK / "minutes"  # of the runs that this one goes on with
    minutes = (time.monotonic() - started) / 60 + (float(kept.read_text()) if kept.exists() else 0)
    kept.write_text(str(minutes))
    return Run(given.seed, minutes, given.again, made, mutants)


def _make_mutants(ending: str) -> dict[str, list[str]]:
    """Write every module with all its mutants below WORK; their names by module."""
    operators.install()
    WORK.mkdir(exist_ok=True)
    copy_src_dir()
    copy_also_copy_files()
    setup_source_paths()
    # Those that run are the copies: this program's own package has the same name.
    for name in [one for one in sys.modules if one.split(".")[0] == "tests"]:
        del sys.modules[name]
    # They have just passed on the code as it is, when mutmut found out which of them reach what.
    ForkServerRunner.run_clean_tests = lambda *_, **__: 0
    ForkServerRunner.submit = _submit_quickest_first
    PytestRunner.run_tests = _run_a_few_first
    mutmut.estimated_worst_case_time = _seconds_of_a_few
    # The tests could not run, which mutmut counts as a kill.
    status_by_exit_code[255] = "suspicious"
    mutmut.create_mutants(AT_A_TIME)
    names: dict[str, list[str]] = {}
    for data in _made():
        for name in data.exit_code_by_key:
            if (module := get_module_from_key(name)).endswith(ending):
                names.setdefault(module, []).append(name)
    return names


def _submit_quickest_first(runner: ForkServerRunner, name: str, tests: list[str], *more: Any) -> None:
    """In mutmut the order is that of a set: slow, and another one each time.

    A test is collected again in the same process, where pytest escapes backslashes of given ids twice: such ones run by
    their function.
    """
    ordered = sorted(tests, key=lambda test: (state().duration_by_test[test], test))
    found = dict.fromkeys(test.partition("[")[0] if "\\" in test else test for test in ordered)
    _SUBMIT(runner, name, list(found), *more)


def _run_a_few_first(runner: PytestRunner, *, mutant_name: str | None, tests: list[str]) -> int:
    """Most mutants end with the first tests; pytest takes long to find hundreds by name."""
    few, more = tests[:FEW], tests[FEW:]
    code = _RUN_TESTS(runner, mutant_name=mutant_name, tests=few)
    return _RUN_TESTS(runner, mutant_name=mutant_name, tests=more) if more and code == 0 else code


def _seconds_of_a_few(name: str) -> float:
    """What a mutant takes that ends soon, by which they are ordered."""
    tests = state().tests_by_mangled_function_name.get(mangled_name_from_mutant_name(name), ())
    return sum(sorted(state().duration_by_test[test] for test in tests)[:FEW])


def _made() -> list[SourceFileMutationData]:
    found = [SourceFileMutationData(path=path) for path in walk_mutatable_files()]
    for data in found:
        data.load()
    return found


def _statuses() -> dict[str, tuple[str, str]]:
    """Of every mutant the file and what became of it so far."""
    return {
        name: (str(data.path), status_by_exit_code[code])
        for data in _made()
        for name, code in data.exit_code_by_key.items()
    }


def _try(names: list[str], seconds: float) -> None:
    """Run the tests against each mutant; what is done by then stays written below WORK."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1))
    try:
        mutmut._run(names, AT_A_TIME)
    except KeyboardInterrupt:
        print("the time is up")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _mutant(name: str, path: str, status: str) -> Mutant:
    function, owner = orig_function_and_class_names_from_key(name)
    module = get_module_from_key(name)
    where = ".".join(part for part in (module, owner, function) if part)
    return Mutant(module, change_of(where, get_diff_for_mutant(name, path=path)), status)


if __name__ == "__main__":
    main()
