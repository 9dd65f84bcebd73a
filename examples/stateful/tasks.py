"""Makes the questions: some transfers, and what an account holds after them.

python tasks.py --out data --seed 3
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

OPENING = {"ann": 1000, "bob": 2000, "cid": 3000, "dee": 4000}
"""What each account holds at the start of every rollout."""


def make_row(number: int, seed: int) -> dict[str, Any]:
    """Return one task: transfers all into one account, and the sum it holds then."""
    rng = random.Random(f"{seed}/{number}")
    target = rng.choice(sorted(OPENING))
    others = [name for name in sorted(OPENING) if name != target]
    moves = [
        {"source": rng.choice(others), "target": target, "amount": rng.randint(1, 20)}
        for _ in range(rng.randint(2, 6))
    ]
    words = ", ".join(f"{m['amount']} from {m['source']}" for m in moves)
    question = f"Move into the account of {target}: {words}. How much does {target} hold then?"
    return {
        "id": f"bank-{number}",
        "group": f"bank-{number}",
        "kind": "transfers",
        "messages": [{"role": "user", "content": question}],
        "moves": moves,
        "account": target,
        "answer": OPENING[target] + sum(m["amount"] for m in moves),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data"))
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--count", type=int, default=400)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(make_row(n, options.seed)) + "\n" for n in range(options.count)]
    (options.out / "tasks.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
