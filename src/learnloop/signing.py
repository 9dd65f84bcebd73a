"""Signing: the Ed25519 key of whoever exports a ledger, and the check of what it signed."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from platformdirs import user_config_path

from learnloop.errors import ConfigError, UsageError, writing

_PREFIX = "sha256:"
_OTHERS = 0o077
"""Rights that nobody but the owner of a key may have."""


@dataclass(frozen=True, kw_only=True)
class SigningKey:
    """A private key, and what may be told of it."""

    private: Ed25519PrivateKey

    @property
    def public_pem(self) -> bytes:
        """Return the public key as a PEM file holds it."""
        return self.private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def fingerprint(self) -> str:
        """Return the short name by which people compare keys."""
        return fingerprint(self.public_pem)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some bytes; equal bytes, equal signature."""
        return self.private.sign(data)


def key_path() -> Path:
    """Return where the user's key lies: in the user's folder for settings, outside of projects."""
    return user_config_path("learnloop") / "ledger-key.pem"


def make_key(path: Path) -> SigningKey:
    """Make a key and write it for its owner alone; one that is there is never overwritten.

    Raises:
        UsageError: there is a key already.
    """
    made = SigningKey(private=Ed25519PrivateKey.generate())
    pem = made.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            _write_private(staging, pem)
            # A link fails where a file is; a rename would replace it.
            os.link(staging, path)
        except FileExistsError:
            what = "there is a key already, and it is not overwritten"
            fix = "Use it, or move it away: archives it signed name it."
            raise UsageError(what, where=str(path), fix=fix) from None
        finally:
            staging.unlink(missing_ok=True)
    return made


def load_key(path: Path) -> SigningKey:
    """Return the user's key.

    Raises:
        ConfigError: there is none, others may read it, or it is no Ed25519 key.
    """
    try:
        mode, pem = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        what = f"the key for signing cannot be read ({error.strerror})"
        fix = "`learnloop ledger keygen` makes one."
        raise ConfigError(what, where=str(path), fix=fix) from None
    if os.name == "posix" and mode & _OTHERS:
        what = "others than its owner may read the key for signing"
        raise ConfigError(what, where=str(path), fix=f"chmod 600 {path}")
    try:
        private = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        what = "is no Ed25519 key without a password, in PEM form"
        raise ConfigError(what, where=str(path), fix="Put back the one that `keygen` wrote.")
    return SigningKey(private=private)


def fingerprint(public_pem: bytes) -> str:
    """Return `sha256:` and the hash of a public key in DER form, as OpenSSL hashes it too.

    Raises:
        ValueError: it is no Ed25519 public key.
    """
    der = _public(public_pem).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return _PREFIX + hashlib.sha256(der).hexdigest()


def is_signed(public_pem: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether the owner of a public key signed exactly these bytes.

    Raises:
        ValueError: it is no Ed25519 public key.
    """
    try:
        _public(public_pem).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def whole_fingerprint(noted: str) -> str:
    """Return a noted fingerprint as `fingerprint` writes it; part of one would prove less.

    Raises:
        ValueError: it is none.
    """
    digits = noted.strip().lower().removeprefix(_PREFIX)
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError("a fingerprint is `sha256:` and 64 digits, 0 to 9 and a to f")
    return _PREFIX + digits


def _public(pem: bytes) -> Ed25519PublicKey:
    try:
        public = load_pem_public_key(pem)
    except UnsupportedAlgorithm:
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("no Ed25519 public key")
    return public


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that nobody else can read at any moment."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
