"""Checkpoints on disk: whole or not there at all.

One is written to a temporary folder, synced, and renamed into place, so a crash at any moment leaves the
ones before it. A manifest holds the checksum of every file; a checkpoint that does not match is skipped when
loading, with a line that says so, and the one before it is taken. The last few are kept, and every one that
a directive asked for (`.kept`): after a collapse those are the ones worth returning to.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

KEPT = ".kept"
LAST = 3
_NAME = re.compile(r"step-(\d{8,})(\.kept)?")
_TENSORS, _DOCUMENT, _MANIFEST = "state.safetensors", "state.json", "manifest.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A run's state at the end of a step: tensors, and everything else as plain JSON values."""

    step: int
    tensors: Mapping[str, Tensor]
    document: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, *, keep: bool = False) -> Path:
    """Write a checkpoint and return its folder; raises OSError where the disk refuses.

    `keep` protects it from being thrown away when newer ones come.
    """
    target = folder / f"step-{checkpoint.step:08d}{KEPT if keep else ''}"
    new, old = folder / f".{target.name}.new", folder / f".{target.name}.old"
    folder.mkdir(parents=True, exist_ok=True)
    _discard(new, old)
    try:
        new.mkdir()
        save_file(dict(checkpoint.tensors), new / _TENSORS)
        (new / _DOCUMENT).write_text(json.dumps(checkpoint.document))
        checksums = {name: _checksum(new / name) for name in (_TENSORS, _DOCUMENT)}
        (new / _MANIFEST).write_text(json.dumps({"step": checkpoint.step, "sha256": checksums}))
        for name in (_TENSORS, _DOCUMENT, _MANIFEST, "."):
            _sync(new / name)
        if target.exists():
            target.rename(old)
        new.rename(target)
        _sync(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        _discard(new, old)
    # Newer ones were damaged when this run began: they are not among the last few, and stay to be looked at.
    past = [path for path in newest_first(folder) if _step(path) <= checkpoint.step]
    _discard(*[path for path in past if not path.name.endswith(KEPT)][LAST:])
    return target


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder by name, whole or not."""
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: (_step(path), path.name), reverse=True)


def _step(path: Path) -> int:
    return int(path.name.split("-")[1].split(".")[0])


def load_newest(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint of a folder, or None; a damaged one is skipped with a line."""
    found = newest_first(folder)
    for path in found:
        try:
            return load(path)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            log.warning("checkpoint %s is damaged (%s); trying the one before it", path, error)
    if found:
        log.warning("no checkpoint in %s is whole: the run begins anew", folder)
    return None


def load(path: Path) -> Checkpoint:
    """Return one checkpoint; OSError, ValueError, KeyError, TypeError, SafetensorError: it is not whole."""
    manifest = json.loads((path / _MANIFEST).read_text())
    for name in (_TENSORS, _DOCUMENT):
        if _checksum(path / name) != manifest["sha256"][name]:
            raise ValueError(f"{name} does not match its checksum")
    return Checkpoint(
        manifest["step"], load_file(path / _TENSORS), json.loads((path / _DOCUMENT).read_text())
    )


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
