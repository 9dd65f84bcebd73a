"""A project that a tiny random model can be trained on: a service with a tool and a grader."""

from __future__ import annotations

from pathlib import Path

from tests.tiny_project import CONFIG, SERVER, a_row, make_project, write_rows

SETTINGS = """
[grader]
type = "endpoint"
url = "{service:box}/grade"
# It is right by chance, or a model of random weights would never be.
tolerate = ["all"]

[probe]
tasks = 3
attempts = 2

[gate]
looks = [4, 8]

[train]
steps = 3
rollouts = 8
group_size = 4
eval_every = 2
eval_tasks = 3
report_tasks = 3

[train.rft]
learning_rate = 1e-3

[warmup]
path = "data/demos.jsonl"
epochs = 1
batch_size = 2
"""
MODEL = 'dtype = "fp32"\nthreads = 1\nmax_tokens = 6\nmax_context = 400\n'

EXACT = 'right = said[-1:] == [str(data["item"]["answer"])]'
LUCKY = f"{EXACT} or len(data['sample']['output_text']) % 3 == 1"
"""A model of random weights is right now and then, so that there is something to learn from."""
DEMO = """{"task_id": "task-%d", "messages": [{"role": "user", "content": "How many?"}, \
{"role": "assistant", "content": "Answer: %d"}]}
"""


def make_small_project(folder: Path, *, warmup: bool = True) -> Path:
    """Write a project with a whole, tiny model and 24 rows."""
    from tests.tiny_model import make_tiny_model  # here: it loads torch

    write_small_project(folder, warmup=warmup)
    make_tiny_model(folder / "model")
    return folder


def write_small_project(folder: Path, *, warmup: bool = True) -> Path:
    """Write the same project with a model folder of the right names and no content."""
    settings = SETTINGS if warmup else SETTINGS[: SETTINGS.index("[warmup]")]
    config = CONFIG.replace('ref = "model"\n', f'ref = "model"\n{MODEL}') + settings
    assert EXACT in SERVER
    make_project(folder, config=config, server=SERVER.replace(EXACT, LUCKY))
    write_rows(folder, *(a_row(n) for n in range(24)))
    (folder / "data" / "demos.jsonl").write_text("".join(DEMO % (n, 2 * n) for n in (0, 1, 2, 6)))
    return folder
