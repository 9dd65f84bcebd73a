"""Live progress of a run on the terminal, as a sink of its events.

On a terminal one block is redrawn in place; elsewhere (a pipe, a log, CI) each event is one plain
line. Everything goes to stderr, because stdout is for data.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from learnloop.event import Event
from learnloop.render.numbers import NONE, amount, duration

KEPT_STEPS = 8
"""Steps that stay in view."""
WIDE_FROM = 76
"""Terminal columns from which every column of the table is shown."""


class Progress:
    """A sink that shows a run as it goes; use it in a `with` block.

    Args:
        console: where to draw; by default a console on stderr.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._view = RunView()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=4,
                transient=False,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def emit(self, event: Event) -> None:
        """Take one event and show it."""
        self._view.take(event)
        if self._live is None and event.kind != "progress":
            self._console.print(Text(line(event)), soft_wrap=True)
        if event.kind == "run_ended":
            self.close()

    def close(self) -> None:
        """Draw the last state and give the terminal back; safe to call twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> RenderableType:
        return self._view.draw(self._console.width)


class RunView:
    """What is known of a run so far, and how it is drawn."""

    def __init__(self) -> None:
        self._title = "learnloop"
        self._stage, self._stage_since = "starting", time.monotonic()
        self._planned = 0
        self._rollouts = ""
        self._steps: deque[Mapping[str, Any]] = deque(maxlen=KEPT_STEPS)
        self._notes: deque[str] = deque(maxlen=3)
        self._ended = False

    def take(self, event: Event) -> None:
        """Remember what an event says."""
        data = event.data
        if event.kind == "run_started":
            self._title = f"{data.get('project', 'run')} · {event.run_id}"
            self._planned = int(data.get("steps", 0))
        elif event.kind == "stage_started":
            self._stage, self._stage_since = str(data.get("stage", "")), time.monotonic()
            self._rollouts = ""
        elif event.kind == "progress":
            self._rollouts = f"{data.get('done', NONE)} of {data.get('planned', NONE)} rollouts"
        elif event.kind == "step":
            self._steps.append(data)
        elif event.kind != "stage_ended":
            self._notes.append(line(event))
        self._ended = event.kind == "run_ended"

    def draw(self, width: int) -> RenderableType:
        """Return the block for a terminal of this many columns."""
        parts: list[RenderableType] = [self._head()]
        if self._planned:
            done = int(self._steps[-1].get("step", 0)) if self._steps else 0
            parts.append(_bar(done, self._planned, min(width, 72)))
        if self._steps:
            parts.append(_steps_table(tuple(self._steps), wide=width >= WIDE_FROM))
            foot = (_left(tuple(self._steps), self._planned), _faults(self._steps[-1]))
            parts.append(Text(" · ".join(part for part in foot if part), style="dim"))
        parts += [Text(note, style="dim") for note in self._notes]
        return Group(*parts)

    def _head(self) -> Text:
        words = "done" if self._ended else self._stage
        head = Text(self._title, style="bold")
        head.append(f" · {words}", style="cyan")
        if not self._ended and self._rollouts:
            head.append(f" · {self._rollouts}")
        if not self._ended:
            head.append(f" · {duration(time.monotonic() - self._stage_since)}", style="dim")
        return head


def line(event: Event) -> str:
    """Return an event as one plain line."""
    data = event.data
    writer = _LINES.get(event.kind)
    words = writer(data) if writer else _pairs(data)
    return f"{event.kind.replace('_', ' ')}: {words}".rstrip(": ")


def _bar(done: int, planned: int, width: int) -> Text:
    counted = f" {done} of {planned} steps"
    room = max(0, width - len(counted))
    full = min(room, round(room * done / planned))
    bar = Text("\N{BOX DRAWINGS HEAVY HORIZONTAL}" * full, style="green")
    bar.append("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (room - full), style="dim")
    return bar.append(counted)


def _steps_table(steps: tuple[Mapping[str, Any], ...], *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    names = ["step", "reward \N{PLUS-MINUS SIGN} 95 %", "learnable", "calls"]
    names += ["lost", "tok/s", "time"] if wide else ["lost", "time"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for step in steps:
        cells = [str(step.get("step", NONE)), _reward(step), _share(step.get("learnable_share"))]
        cells += [_number(step.get("calls_mean")), str(_lost(step))]
        cells += [_number(_tokens_per_s(step), 0)] if wide else []
        table.add_row(*cells, duration(_seconds(step)))
    return table


def _step_line(data: Mapping[str, Any]) -> str:
    parts = [
        f"{data.get('step', NONE)}",
        f"reward {_reward(data)}",
        f"learnable {_share(data.get('learnable_share'))}",
        f"calls {_number(data.get('calls_mean'))}",
        f"lost {_lost(data)}",
        f"{_number(_tokens_per_s(data), 0)} tok/s",
        duration(_seconds(data)),
        _faults(data),
    ]
    return ", ".join(p for p in parts if p)


def _reward(data: Mapping[str, Any]) -> str:
    value, low, high = (data.get(k) for k in ("reward_mean", "reward_low", "reward_high"))
    if value is None:
        return NONE
    half = ""
    if low is not None and high is not None:
        half = f" \N{PLUS-MINUS SIGN} {(high - low) / 2:.2f}"
    return f"{value:.2f}{half}"


def _lost(data: Mapping[str, Any]) -> int:
    return sum(_counts(data, "lost").values())


def _faults(data: Mapping[str, Any]) -> str:
    lost = _counts(data, "lost")
    return "lost to " + ", ".join(f"{kind} {n}" for kind, n in sorted(lost.items())) if lost else ""


def _counts(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return data.get(key) or {}


def _seconds(data: Mapping[str, Any]) -> float | None:
    phases = _counts(data, "seconds")
    return float(sum(phases.values())) if phases else None


def _tokens_per_s(data: Mapping[str, Any]) -> float | None:
    """Return tokens that were computed for each second of the whole step."""
    seconds, tokens = _seconds(data), _counts(data, "tokens")
    computed = sum(count for kind, count in tokens.items() if kind != "reused")
    return computed / seconds if seconds and tokens else None


def _left(steps: Sequence[Mapping[str, Any]], planned: int) -> str:
    """Say how long the remaining steps take at the pace of those in view."""
    spent = [s for s in map(_seconds, steps) if s is not None]
    missing = planned - int(steps[-1].get("step", 0)) if steps else 0
    if not spent or missing <= 0:
        return ""
    return f"about {duration(missing * sum(spent) / len(spent))} left for training"


def _share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f} %"


def _number(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _pairs(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in data.items() if isinstance(v, str | int | float))


def _evaluation_line(data: Mapping[str, Any]) -> str:
    spread = ""
    if data.get("low") is not None and data.get("high") is not None:
        spread = f" (95 % {100 * data['low']:.0f} to {100 * data['high']:.0f})"
    step = data.get("step", 0)
    when = f"after step {step}" if step > 0 else "before training" if step == 0 else "untrained"
    where = f"{data.get('split', 'screen')} {when}"
    accuracy = amount(data.get("accuracy"), "share")
    return f"{where}: {accuracy}{spread}, {data.get('n', NONE)} tasks"


def _started_line(data: Mapping[str, Any]) -> str:
    parts = [str(data.get("project", ""))]
    parts += [f"{data['steps']} steps"] if data.get("steps") else []
    parts += [f"seed {data['seed']}"] if "seed" in data else []
    parts += ["resumed"] if data.get("resumed") else []
    return ", ".join(part for part in parts if part)


def _warmup_line(data: Mapping[str, Any]) -> str:
    losses = [_number(data.get(key), 2) for key in ("first_loss", "last_loss")]
    return (
        f"{data.get('demonstrations', NONE)} demonstrations, loss {' to '.join(losses)}, "
        f"{duration(data.get('seconds'))}"
    )


def _probe_line(data: Mapping[str, Any]) -> str:
    return ". ".join(str(data[key]) for key in ("sentence", "advice") if key in data)


def _gate_line(data: Mapping[str, Any]) -> str:
    if "outcome" not in data:
        return _pairs(data)
    return f"{str(data['outcome']).replace('_', ' ')}, {data.get('words', '')}"


def _ended_line(data: Mapping[str, Any]) -> str:
    return f"after {duration(data['spent_s'])}" if "spent_s" in data else _pairs(data)


_LINES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "run_started": _started_line,
    "stage_started": lambda data: str(data.get("stage", "")),
    "warmup": _warmup_line,
    "probe": _probe_line,
    "probe_after": _probe_line,
    "evaluation": _evaluation_line,
    "noise": lambda data: str(data.get("words", "")),
    "regressions": lambda data: (
        f"{len(data.get('protected', ()))} protected tasks, {len(data.get('confirmed', ()))} got worse"
    ),
    "watch": lambda data: f"step {data.get('step', NONE)} is watched",
    "alarm": lambda data: f"{data.get('guard', NONE)}: {data.get('words', '')}",
    "step": _step_line,
    "checkpoint": lambda data: f"{str(data.get('weights', NONE)).rpartition('/')[2]} is chosen",
    "gate": _gate_line,
    "seal_opened": lambda data: f"{data.get('tasks', NONE)} tasks of the sealed test",
    "test": lambda data: f"{data.get('tasks', NONE)} tasks measured",
    "paused": lambda data: str(data.get("reason", "")),
    "repeated": lambda data: (
        f"{len(data.get('rollouts', ()))} rollouts were under way when the run ended; they are made anew, "
        "and what they took is not in the budget, nobody recorded it"
    ),
    "endpoint_down": lambda data: f"{data.get('endpoint', NONE)} is down: {data.get('fault', '')}",
    "endpoint_up": lambda data: (
        f"{data.get('endpoint', NONE)} answers again after {duration(data.get('down_s', 0))}"
    ),
    "run_ended": _ended_line,
}
