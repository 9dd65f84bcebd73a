"""How a corpus is searched: by words, by meaning, or by both with the rankings fused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from learnloop.config import CorpusConfig
from learnloop.tools.corpus.index import Corpus, Hit

Search = Callable[[str, int], list[Hit]]
"""Returns the best documents for a query, at most so many."""

_RRF = 60
"""How little the first places weigh more than the next; the value of the paper."""
_DEEPEST = 100
"""Places of each ranking that are looked at."""


async def open_search(config: CorpusConfig, corpus: Corpus) -> Search:
    """Return the search that the project wants; by meaning, documents are embedded first.

    Raises:
        ConfigError: the extra `[semantic]` is asked for and not installed.
    """
    if config.search == "bm25":
        return corpus.search
    # Imported here: numpy is not needed to search by words.
    from learnloop.tools.corpus.embedding import Embedder
    from learnloop.tools.corpus.vectors import Vectors

    vectors = await Vectors.open(corpus, Embedder())
    if config.search == "semantic":
        return vectors.search
    return partial(_both, (corpus.search, vectors.search))


def _both(searches: Sequence[Search], query: str, results: int) -> list[Hit]:
    deep = max(results, _DEEPEST)
    return fused([search(query, deep) for search in searches])[:results]


def fused(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Return the hits of several rankings, best first; of two snippets the first ranking's is taken.

    Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): a document's score is the sum
    of 1 / (60 + rank) over the rankings that have it, so that scores of unlike scales never meet.
    """
    scores: defaultdict[str, float] = defaultdict(float)
    hits: dict[str, Hit] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, start=1):
            scores[hit.path] += 1 / (_RRF + rank)
            hits.setdefault(hit.path, hit)
    return sorted(hits.values(), key=lambda hit: (-scores[hit.path], hit.path))
