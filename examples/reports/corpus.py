"""Writes the project's world: company reports, questions about them and demonstrations.

    python corpus.py --out data --seed 7

Everything follows from the seed, so two people with the same seed have the same files:
reports.jsonl (path, text), reports.sqlite (the search index), tasks.jsonl (questions with the
expected answer) and demos.jsonl (worked solutions of training questions).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

YEARS = (2020, 2021, 2022, 2023)
ITEMS = ("revenue", "operating profit", "net income")
RANGES = {
    "revenue": (100, 999),
    "operating profit": (20, 99),
    "net income": (10, 60),
}
KINDS = ("lookup", "indirect", "ratio", "difference", "highest", "together")
# Of the demonstrations. A look-up is a part of every harder solution and needs few of its own.
DEMO_SHARES = {
    "lookup": 16,
    "indirect": 20,
    "ratio": 34,
    "difference": 38,
    "highest": 26,
    "together": 44,
}
HABITS = {"search": 0.6, "direct": 0.3, "list": 0.1}  # of those who show how it is done
LAST_ONLY = 0.2  # of them open only the last report that a question names
SPLITS = (("train", 0.35), ("screen", 0.15), ("confirm", 0.25), ("test", 0.25))
COMPANIES = 600
TAKEN = "Bay Motors"  # the example in prompts/system.md, which no report should contradict
RESTATED_SHARE = 0.085  # of the cells that have a later report: about 6 % of all cells
MAX_RESTATED = 2  # in one company, so that notes stay short
CLEAR_LEAD = 0.1  # of the highest year over the next
EXPLICIT_SHARE = 0.4  # of look-ups where the company restated something

Cell = tuple[str, int]
Row = dict[str, Any]

# Second word of a company's name, and what such companies sell.
SECTORS = {
    "Foods": ("frozen vegetables", "breakfast cereals", "canned soups"),
    "Motors": ("electric vans", "delivery scooters", "truck engines"),
    "Mills": ("cotton towels", "wool blankets", "paper bags"),
    "Glass": ("window panes", "wine bottles", "camera lenses"),
    "Marine": ("sailing boats", "ship propellers", "fishing nets"),
    "Optics": ("contact lenses", "laser sensors", "microscopes"),
    "Timber": ("parquet floors", "garden sheds", "wooden doors"),
    "Energy": ("solar panels", "heat pumps", "wind turbines"),
    "Dairy": ("goat cheese", "fruit yogurt", "salted butter"),
    "Tools": ("power drills", "bread ovens", "garden shears"),
    "Health": ("hearing aids", "vitamin pills", "hospital beds"),
    "Games": ("jigsaw puzzles", "chess sets", "toy trains"),
}
FIRST_WORDS = (
    "Alder Amber Anchor Apex Arbor Arrow Aspen Atlas Badger Bay Beacon Birch Bishop Boulder Bridge "
    "Brook Canyon Cedar Cliff Clover Comet Copper Coral Crane Crest Crown Delta Eagle Echo Elm "
    "Ember Falcon Fern Finch Flint Forest Fox Garnet Granite Grove Harbor Hawk Hazel Heron Hill "
    "Holly Iris Island Ivory Jade Juniper Lake Lark Laurel Lotus Maple Meadow Merlin Moss North "
    "Oak Olive Onyx Orchid Otter Pearl Pine Prairie Quartz Raven Reed Ridge River Robin Rose Ruby "
    "Sage Silver Sparrow Spring Star Stone Summit Swan Thistle Tiger Topaz Valley Violet Willow"
)
TOWNS = (
    "Leeds York Bath Derby Dover Lisbon Porto Madrid Paris Lyon Nice Rome Milan Turin Berlin Bonn "
    "Vienna Graz Prague Warsaw Oslo Bergen Dublin Cork Geneva Basel Boston Denver Austin Dallas "
    "Chicago Miami Toronto Sydney Perth Tokyo Kyoto Cairo Lagos Lima"
)

LEADS = (
    "The company makes {trade} in {town}.",
    "From {town}, the group sells {trade}.",
    "It is a {town} maker of {trade}.",
    "Based in {town}, it supplies {trade}.",
)
# Numbers that are no answer: a plan, a forecast, a part of the whole.
ASIDES = (
    "The target for {next} revenue is {more}.",
    "Guidance for {next}: revenue near {more}.",
    "Export sales were {part}.",
    "The largest segment earned {part} of sales.",
    "The {year} budget had planned sales of {more}.",
)


@dataclass(frozen=True, kw_only=True)
class Company:
    """One company with all it ever reported: first figures, and those corrected a year later."""

    name: str
    slug: str
    trade: str
    town: str
    first: dict[Cell, int]
    restated: dict[Cell, int]

    def shown(self, item: str, year: int, report_year: int) -> int:
        """Return the figure for `year` that the report of `report_year` prints."""
        cell = (item, year)
        return self.restated.get(cell, self.first[cell]) if report_year > year else self.first[cell]

    def path(self, year: int) -> str:
        """Return the path of one report."""
        return f"{self.slug}/{year}"


def make_companies(seed: int) -> list[Company]:
    """Return the companies; names are unique, and so are pairs of trade and town."""
    rng = random.Random(f"{seed}/names")
    names = [(a, b) for a in FIRST_WORDS.split() for b in SECTORS if f"{a} {b}" != TAKEN]
    places = [
        (sector, trade, town)
        for sector in SECTORS
        for trade in SECTORS[sector]
        for town in TOWNS.split()
    ]
    rng.shuffle(names)
    rng.shuffle(places)
    by_sector = {sector: [p for p in places if p[0] == sector] for sector in SECTORS}
    companies: list[Company] = []
    for first, sector in names[:COMPANIES]:
        _, trade, town = by_sector[sector].pop()
        name = f"{first} {sector}"
        slug = name.lower().replace(" ", "-")
        figures, restated = make_figures(random.Random(f"{seed}/figures/{slug}"))
        companies.append(
            Company(name=name, slug=slug, trade=trade, town=town, first=figures, restated=restated)
        )
    return companies


def make_figures(rng: random.Random) -> tuple[dict[Cell, int], dict[Cell, int]]:
    """Return first figures and restated ones; no report shows two equal figures of one item."""
    first: dict[Cell, int] = {}
    restated: dict[Cell, int] = {}
    for item in ITEMS:
        low, high = RANGES[item]
        level = rng.uniform(low * 1.4, high * 0.78)
        # Independent draws around a level, so that any year may be the highest one.
        spread = [v for v in range(int(level * 0.75), int(level * 1.25) + 1) if low <= v <= high]
        values = rng.sample(spread, len(YEARS))
        first |= {(item, year): value for year, value in zip(YEARS, values, strict=True)}
        for year, value in zip(YEARS[:-1], values, strict=False):
            if rng.random() < RESTATED_SHARE and len(restated) < MAX_RESTATED:
                unused = set(spread) - set(values) - set(restated.values())
                near = sorted(unused, key=lambda v: (abs(v - value), v))[: max(6, value // 6)]
                restated[item, year] = rng.choice(near)
    return first, restated


def report_parts(company: Company, year: int, seed: int) -> tuple[str, str, str]:
    """Return title, prose and table of one report; the text is these three, a line or more each."""
    rng = random.Random(f"{seed}/prose/{company.path(year)}")
    sales = company.first["revenue", year]
    aside = rng.choice(ASIDES).format(
        year=year,
        next=year + 1,
        more=round(sales * rng.uniform(1.03, 1.2)),
        part=round(sales * rng.uniform(0.2, 0.6)),
    )
    lead = rng.choice(LEADS).format(trade=company.trade, town=company.town)
    prose = [lead, aside] if rng.random() < 0.7 else [aside, lead]
    columns = [y for y in range(year, year - 3, -1) if y in YEARS]
    table = [
        " ".join([item, *(f"{y}:{company.shown(item, y, year)}" for y in columns)])
        for item in ITEMS
    ]
    table += [
        f"{y} {item} restated from {company.first[item, y]}"
        for item in ITEMS
        for y in columns[1:]
        if (item, y) in company.restated
    ]
    return f"{company.name} {year}, million USD", " ".join(prose), "\n".join(table)


def report_text(company: Company, year: int, seed: int) -> str:
    """Return the text of one report."""
    return "\n".join(report_parts(company, year, seed))


# --- questions -----------------------------------------------------------------------------------

PHRASES = {
    "plain": (
        "What was the {item} of {who} in {year}?",
        "Find the {year} {item} of {who}.",
        "How large was the {item} of {who} in {year}?",
        "In {year}, what {item} did {who} report?",
    ),
    "first": (
        "What was the {year} {item} of {who} as first reported?",
        "Find the {year} {item} of {who} as first reported in {year}, before any restatement.",
    ),
    "restated": (
        "What was the {year} {item} of {who} as restated in {later}?",
        "Find the {year} {item} of {who} as restated in the {later} report.",
    ),
    "ratio": (
        "What is {item} divided by {other} for {who} in {year}?",
        "For {who} in {year}, divide {item} by {other}.",
        "Compute the ratio of {item} to {other} of {who} in {year}.",
    ),
    "difference": (
        "By how much did the {item} of {who} rise from {year} to {later}? A fall is negative.",
        "What was the change in {item} at {who} from {year} to {later}? A fall is negative.",
        "From {year} to {later}, how much did {who} add to its {item}? A fall is negative.",
    ),
    "highest": (
        "In which year from {year} to {later} was the {item} of {who} highest?",
        "Which year from {year} to {later} had the highest {item} at {who}?",
        "When was the {item} of {who} at its highest, from {year} to {later}? Give the year.",
    ),
    "together": (
        "What was the {item} of {who} and {other} together in {year}?",
        "Add up the {year} {item} of {who} and of {other}.",
        "In {year}, how much {item} did {who} and {other} report in total?",
    ),
}
DESCRIPTIONS = (
    "the {town} maker of {trade}",
    "the {trade} company in {town}",
    "the company from {town} that sells {trade}",
)
# Pairs whose quotient has enough digits after rounding to four decimals.
RATIOS = (
    ("operating profit", "revenue"),
    ("net income", "revenue"),
    ("net income", "operating profit"),
    ("revenue", "operating profit"),
    ("revenue", "net income"),
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, its answer, and the cells that a reader must see: (company, item, year)."""

    text: str
    answer: float
    reads: tuple[tuple[Company, str, int], ...]
    expression: str = ""
    tolerance: tuple[tuple[str, float], ...] = ()


def phrase(rng: random.Random, key: str, **words: object) -> str:
    """Return one of the phrasings with its words put in."""
    return rng.choice(PHRASES[key]).format(**words)


def ask_lookup(rng: random.Random, company: Company, who: str) -> Question:
    """Ask for one figure; where one was restated, sometimes for a named version of it."""
    if company.restated and rng.random() < EXPLICIT_SHARE:
        item, year = rng.choice(sorted(company.restated))
        later = rng.random() < 0.5
        seen = year + 1 if later else year
        key = "restated" if later else "first"
        text = phrase(rng, key, item=item, who=who, year=year, later=year + 1)
        answer = company.shown(item, year, seen)
        return Question(text=text, answer=answer, reads=((company, item, seen),))
    free = [(i, y) for i in ITEMS for y in YEARS if (i, y) not in company.restated]
    item, year = rng.choice(free)
    text = phrase(rng, "plain", item=item, who=who, year=year)
    return Question(text=text, answer=company.first[item, year], reads=((company, item, year),))


def ask_indirect(rng: random.Random, company: Company) -> Question:
    """Ask for one figure of a company that is described, not named."""
    who = rng.choice(DESCRIPTIONS).format(town=company.town, trade=company.trade)
    return ask_lookup(rng, company, who)


def ask_ratio(rng: random.Random, company: Company) -> Question:
    """Ask for one item divided by another of the same year."""
    free = [
        (a, b, y)
        for a, b in RATIOS
        for y in YEARS
        if (a, y) not in company.restated and (b, y) not in company.restated
    ]
    over, under, year = rng.choice(free)
    top, bottom = company.first[over, year], company.first[under, year]
    return Question(
        text=phrase(rng, "ratio", item=over, other=under, who=company.name, year=year),
        answer=round(top / bottom, 4),
        reads=((company, over, year), (company, under, year)),
        expression=f"{top} / {bottom}",
        tolerance=(("rel_tol", 0.01),),
    )


def ask_difference(rng: random.Random, company: Company) -> Question:
    """Ask for a later figure minus an earlier one, one or two years apart."""
    free = [
        (item, year, year + gap)
        for gap in (1, 2)
        for item in ITEMS
        for year in YEARS
        if year + gap in YEARS and not {(item, year), (item, year + gap)} & set(company.restated)
    ]
    gap = rng.choice(sorted({later - year for _, year, later in free}))
    item, year, later = rng.choice([f for f in free if f[2] - f[1] == gap])
    old, new = company.first[item, year], company.first[item, later]
    return Question(
        text=phrase(rng, "difference", item=item, who=company.name, year=year, later=later),
        answer=new - old,
        reads=((company, item, year), (company, item, later)),
        expression=f"{new} - {old}",
    )


def ask_highest(rng: random.Random, company: Company) -> Question:
    """Ask in which of three years an item was highest, by a clear margin where there is one."""
    free = [
        (item, range(year, year + 3))
        for item in ITEMS
        for year in YEARS[:-2]
        if not any((item, y) in company.restated for y in range(year, year + 3))
    ]
    clear = [(item, span) for item, span in free if lead(company, item, span) >= CLEAR_LEAD]
    item, span = rng.choice(clear or free)
    words = {"item": item, "who": company.name, "year": span[0], "later": span[-1]}
    return Question(
        text=phrase(rng, "highest", **words),
        answer=max(span, key=lambda y: company.first[item, y]),
        reads=tuple((company, item, y) for y in span),
    )


def lead(company: Company, item: str, span: Sequence[int]) -> float:
    """Return by which share the highest figure of a span exceeds the next."""
    second, first = sorted(company.first[item, y] for y in span)[-2:]
    return first / second - 1


def ask_together(rng: random.Random, company: Company, other: Company) -> Question:
    """Ask for the sum of an item over this company and its pair."""
    restated = {**company.restated, **other.restated}
    free = [(item, year) for item in ITEMS for year in YEARS if (item, year) not in restated]
    item, year = rng.choice(free)
    ours, theirs = company.first[item, year], other.first[item, year]
    return Question(
        text=phrase(rng, "together", item=item, who=company.name, other=other.name, year=year),
        answer=ours + theirs,
        reads=((company, item, year), (other, item, year)),
        expression=f"{ours} + {theirs}",
    )


def ask(kind: str, company: Company, other: Company, seed: int) -> Question:
    """Return the question of one kind about one company."""
    rng = random.Random(f"{seed}/{kind}/{company.slug}")
    if kind == "together":
        return ask_together(rng, company, other)
    if kind == "lookup":
        return ask_lookup(rng, company, company.name)
    asked = {
        "indirect": ask_indirect,
        "ratio": ask_ratio,
        "difference": ask_difference,
        "highest": ask_highest,
    }
    return asked[kind](rng, company)


def split_of_pairs(pairs: int, seed: int) -> list[str]:
    """Return the split of each pair of companies: fixed shares, in shuffled order."""
    names: list[str] = []
    total = 0.0
    for name, share in SPLITS:
        total += share
        names += [name] * (round(total * pairs) - len(names))
    random.Random(f"{seed}/splits").shuffle(names)
    return names


def make_tasks(companies: Sequence[Company], seed: int) -> list[tuple[Row, Question]]:
    """Return one task of each kind for each company, with the question it came from."""
    splits = split_of_pairs(len(companies) // 2, seed)
    tasks: list[tuple[Row, Question]] = []
    for place, company in enumerate(companies):
        pair = place // 2
        for kind in KINDS:
            question = ask(kind, company, companies[place ^ 1], seed)
            paths = dict.fromkeys(c.path(year) for c, _, year in question.reads)
            row: Row = {
                "id": f"{kind}-{company.slug}",
                "split": splits[pair],
                "group": f"pair-{pair:03d}",
                "kind": kind,
                "messages": [{"role": "user", "content": question.text}],
                "answer": int(question.answer)
                if question.answer == int(question.answer)
                else question.answer,
                "documents": list(paths),
            }
            tasks.append((row | dict(question.tolerance), question))
    return tasks


# --- demonstrations ------------------------------------------------------------------------------


class Reader:
    """Somebody who knows the reports, at work: makes one call after another and notes what came back.

    Habits differ, as they do between people. Most search first, some compose the path or list the
    company's folder. Most open the report of every year that a question names; some open the last
    one and stop there, because it prints the years before too.
    """

    def __init__(self, rng: random.Random, tools: dict[str, Callable[[str], str]]) -> None:
        self.rng = rng
        self.tools = tools
        self.messages: list[Row] = []

    def call(self, name: str, key: str, text: str) -> str:
        """Make one call and note it with its real result."""
        call_id = f"call_{sum(m['role'] == 'tool' for m in self.messages)}"
        function = {"name": name, "arguments": json.dumps({key: text})}
        call = {"id": call_id, "type": "function", "function": function}
        output = self.tools[name](text)
        self.messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        self.messages.append(
            {"role": "tool", "tool_call_id": call_id, "name": name, "content": output}
        )
        return output

    def find(self, company: Company, year: int, habit: str, kind: str) -> str:
        """Return the folder of the company, found by the reader's habit."""
        if habit == "list":
            self.call("list", "path", company.slug)
        elif habit == "search":
            described = f"{company.trade} {company.town}"
            who = described if kind == "indirect" else company.name
            found = self.call("search", "query", f"{who} {year}")
            return found.partition(" | ")[0].partition("/")[0]
        return company.slug

    def solve(self, row: Row, question: Question) -> None:
        """Work through one question and write down the answer."""
        self.messages.append(row["messages"][0])
        habit = self.rng.choices(tuple(HABITS), tuple(HABITS.values()))[0]
        if row["kind"] == "indirect":
            habit = "search"
        reports = {company.path(year): (company, year) for company, _, year in question.reads}
        if self.rng.random() < LAST_ONLY:
            reports = {company.slug: (company, year) for company, year in reports.values()}
        folders: dict[str, str] = {}
        for company, year in reports.values():
            if company.slug not in folders:
                folders[company.slug] = self.find(company, year, habit, row["kind"])
            self.call("cat", "path", f"{folders[company.slug]}/{year}")
        if question.expression:
            self.call("calc", "expression", question.expression)
        self.messages.append({"role": "assistant", "content": f"Answer: {question.answer:g}"})


def make_demos(
    tasks: Sequence[tuple[Row, Question]],
    tools: dict[str, Callable[[str], str]],
    count: int,
    seed: int,
) -> list[Row]:
    """Return demonstrations of training tasks; the shares of the kinds hold at every point."""
    rng = random.Random(f"{seed}/demos")
    by_kind = {
        kind: [t for t in tasks if t[0]["kind"] == kind and t[0]["split"] == "train"]
        for kind in KINDS
    }
    for pool in by_kind.values():
        rng.shuffle(pool)
    demos: list[Row] = []
    given = dict.fromkeys(KINDS, 0)
    for _ in range(count):
        kind = min(KINDS, key=lambda k: (given[k] + 1) / DEMO_SHARES[k])
        row, question = by_kind[kind][given[kind]]
        given[kind] += 1
        reader = Reader(rng, tools)
        reader.solve(row, question)
        demos.append({"task_id": row["id"], "messages": reader.messages})
    return demos


# --- files ---------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Give a place beside the file, and move what was written there to its name at the end.

    Nobody ever sees half a file, and a writer that fails leaves nothing behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_lines(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSONL."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_index(path: Path, companies: Sequence[Company], seed: int) -> None:
    """Write the documents and their full-text index into one SQLite file."""
    with replacing(path) as partial, closing(sqlite3.connect(partial)) as db:
        db.execute("CREATE TABLE reports (path TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID")
        db.execute(
            "CREATE VIRTUAL TABLE words USING fts5(path, title, year, prose, figures,"
            " tokenize = 'porter unicode61')"
        )
        for company in companies:
            for year in YEARS:
                parts = report_parts(company, year, seed)
                path_, (title, prose, table) = company.path(year), parts
                db.execute("INSERT INTO reports VALUES (?, ?)", (path_, "\n".join(parts)))
                words = (path_, title, str(year), prose, table)
                db.execute("INSERT INTO words VALUES (?, ?, ?, ?, ?)", words)
        db.commit()


def write_all(out: Path, *, seed: int = 7, demos: int = 192) -> None:
    """Write every file of the project's data folder; tasks come last, as the sign that all is there."""
    import server  # here, because the server makes missing data by this very function

    out.mkdir(parents=True, exist_ok=True)
    companies = make_companies(seed)
    tasks = make_tasks(companies, seed)
    reports = ((c.path(y), report_text(c, y, seed)) for c in companies for y in YEARS)
    write_lines(out / "reports.jsonl", ({"path": path, "text": text} for path, text in reports))
    write_index(out / "reports.sqlite", companies, seed)
    db = server.open_index(out / "reports.sqlite")
    tools = {
        "search": lambda text: server.search(db, text),
        "list": lambda text: server.list_paths(db, text),
        "cat": lambda text: server.cat(db, text),
        "calc": server.calc,
    }
    write_lines(out / "demos.jsonl", make_demos(tasks, tools, demos, seed))
    db.close()
    write_lines(out / "tasks.jsonl", (row for row, _ in tasks))


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(
        description="Writes the reports, questions and demonstrations."
    )
    parser.add_argument("--out", type=Path, default=Path("data"), help="folder to write to")
    parser.add_argument("--seed", type=int, default=7, help="everything follows from it")
    parser.add_argument("--demos", type=int, default=192, help="demonstrations, at most 200")
    options = parser.parse_args()
    if not 0 <= options.demos <= 200:
        parser.error("--demos must be between 0 and 200")
    try:
        write_all(options.out, seed=options.seed, demos=options.demos)
    except (OSError, sqlite3.Error) as error:
        parser.exit(1, f"cannot write to {options.out}: {error}\n")
    print(f"wrote reports, index, tasks and demonstrations to {options.out}")


if __name__ == "__main__":
    main()
