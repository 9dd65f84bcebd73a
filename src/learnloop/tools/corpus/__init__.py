"""Tools over a folder of text documents: an index in SQLite, and search, list and cat over it."""

from learnloop.tools.corpus.index import Corpus
from learnloop.tools.corpus.search import open_search
from learnloop.tools.corpus.tool import corpus_schemas, corpus_tools

__all__ = ["Corpus", "corpus_schemas", "corpus_tools", "open_search"]
