"""The key that signs archives for auditors: one for a user, in the user's own configuration folder."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from platformdirs import user_config_path

from learnloop.errors import ConfigError, UsageError, writing

_MODE = 0o600


def key_path() -> Path:
    """Return where the key is kept."""
    return user_config_path("learnloop") / "signing_key"


def make_key(path: Path) -> Ed25519PrivateKey:
    """Make a key that only its owner may read.

    Raises:
        UsageError: there is one already, which is never overwritten.
        UserError: the file cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    if path.exists():
        fix = "Move it away first, if you must: what it signed can still be checked."
        raise UsageError("there is a key already", where=str(path), fix=fix)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key.private_bytes_raw().hex() + "\n")
    return key


def read_key(path: Path) -> Ed25519PrivateKey:
    """Return the key.

    Raises:
        UsageError: there is none.
        ConfigError: others may read it, or it is damaged.
    """
    if not path.exists():
        fix = "`learnloop ledger keygen` makes one."
        raise UsageError("there is no key to sign with", where=str(path), fix=fix)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise ConfigError("others may read this key", where=str(path), fix=f"chmod 600 {path}")
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"is no key ({error})", where=str(path)) from None
