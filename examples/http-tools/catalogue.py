"""A small shop's catalogue, and the questions that are asked about it.

    python catalogue.py --out data

Everything follows from the seed: the server and the dataset see the same catalogue without a file
between them. Rows look like those of a hosted reinforcement job: `messages`, `tools`, and whatever
else the grader needs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 11
SIZES = ("small", "medium", "large")
MATERIALS = ("oak", "pine", "steel", "glass", "linen", "clay", "cork", "brass")
THINGS = (
    "lamp", "stool", "shelf", "tray", "vase", "clock", "mirror", "basket", "bench", "bowl",
    "frame", "rack", "stand", "box", "screen", "table", "chair", "hook",
)  # fmt: skip

# What the model is told, in every row. The names must be those of the server and of the project.
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Finds products by words; returns their numbers and names.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "Such as: oak lamp."}},
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Shows price and stock of one product.",
            "parameters": {
                "type": "object",
                "properties": {"sku": {"type": "string", "description": "Such as: A-1001."}},
                "required": ["sku"],
                "additionalProperties": False,
            },
        },
    },
]


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product; those that differ in size only are a family."""

    sku: str
    family: str
    size: str
    price: float
    stock: int

    @property
    def name(self) -> str:
        """Return the name as the catalogue prints it."""
        return f"{self.size} {self.family}"


def make_catalogue(seed: int = SEED) -> list[Product]:
    """Return all products; the order of numbers tells nothing about families."""
    rng = random.Random(seed)
    names = [(f"{m} {t}", size) for m in MATERIALS for t in THINGS for size in SIZES]
    numbers = rng.sample(range(1000, 2000), len(names))
    return [
        Product(
            sku=f"A-{number}",
            family=family,
            size=size,
            price=rng.randrange(20, 400) / 2,
            stock=rng.randrange(1, 90),
        )
        for (family, size), number in zip(names, numbers, strict=True)
    ]


def make_rows(products: list[Product], seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Yield the dataset, shuffled; a family is a group, and a group never crosses a split."""
    families: dict[str, list[Product]] = {}
    for product in products:
        families.setdefault(product.family, []).append(product)
    rows = [row for family in families.values() for row in questions(family)]
    random.Random(f"{seed}/rows").shuffle(rows)
    yield from rows


def questions(family: list[Product]) -> Iterator[dict[str, Any]]:
    """Yield what is asked about one family."""
    small, medium, large = family
    name = small.family
    asked = (
        ("price", f"What does the {medium.name} cost?", medium.price, (medium,)),
        ("price", f"Find the price of the {large.name}.", large.price, (large,)),
        ("stock", f"How many of the {small.name} are in stock?", small.stock, (small,)),
        (
            "difference",
            f"By how much do the prices of the small and the large {name} differ?",
            abs(large.price - small.price),
            (small, large),
        ),
        (
            "together",
            f"How many of the small and the medium {name} are in stock together?",
            small.stock + medium.stock,
            (small, medium),
        ),
    )
    for number, (kind, text, answer, products) in enumerate(asked):
        yield {
            "id": f"{name.replace(' ', '-')}-{number}",
            "group": name,
            "kind": kind,
            "messages": [{"role": "user", "content": text}],
            "tools": TOOLS,
            "answer": answer,
            "skus": [product.sku for product in products],
        }


def main() -> None:
    """Write `tasks.jsonl` into a folder."""
    parser = argparse.ArgumentParser(description="Writes the questions.")
    parser.add_argument("--out", type=Path, required=True)
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in make_rows(make_catalogue())]
    (folder / "tasks.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
