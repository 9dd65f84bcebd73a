"""The command line: parses, calls one function, prints. No behaviour lives here.

`main` is where every exception ends: a mistake of the user is one line on stderr and its exit
code, anything unexpected a short line, with the traceback only under `--verbose`.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import cast

from learnloop.errors import UserError

UNEXPECTED, USAGE, INTERRUPTED, TERMINATED = 1, 2, 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` is without the program's name."""
    words = list(sys.argv[1:] if argv is None else argv)
    with _terminable() as terminated:
        try:
            code = _run(words)
            sys.stdout.flush()  # or a reader that has left is noticed too late to be caught
            return code
        except KeyboardInterrupt:
            print("interrupted; what was finished is kept", file=sys.stderr)
            return TERMINATED if terminated else INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output has seen enough. Python would complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except BaseExceptionGroup as group:
            return _explain(_first(group), words)
        except Exception as error:  # noqa: BLE001  (the last boundary: nothing above can take it)
            return _explain(error, words)


def _run(words: list[str]) -> int:
    # Imported here, so that a wrong installation is also told by the handler above.
    from cyclopts import CycloptsError

    from learnloop.cli.app import build_app

    try:
        app = build_app()
        result = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        text = " ".join(str(error).split())
        print(f"{text} `learnloop --help` lists commands.", file=sys.stderr)
        return USAGE
    return result if isinstance(result, int) else 0


def _explain(error: BaseException, words: Sequence[str]) -> int:
    """Print an error as one line; return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if "--verbose" in words:
        traceback.print_exception(error)
    if isinstance(error, UserError):
        line, code = error.line(), error.exit_code
    elif isinstance(error, OSError):
        line, code = _system_line(error), UNEXPECTED
    else:
        line = f"unexpected {type(error).__name__}: {error}. `--verbose` shows where."
        code = UNEXPECTED
    print(f"error: {' '.join(line.split())}", file=sys.stderr)
    return code


def _system_line(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _first(error: BaseException) -> BaseException:
    """Return the first single error of a nested group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


@contextmanager
def _terminable() -> Generator[list[int]]:
    """Treat SIGTERM like Ctrl-C, which unwinds everything in order; the list tells it was one."""
    seen: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        signal.raise_signal(signal.SIGINT)

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: signals are somebody else's
        yield seen
        return
    deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if deaf:
        # A shell makes the background jobs of a script so, and then neither signal would end them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGTERM, before)
        if deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
