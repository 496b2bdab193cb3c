"""Cache of compiled programs on disk, which shortens the start of later runs of a script."""

import os
from pathlib import Path

import jax

from ._errors import InputError


def enable_compilation_cache(folder: str | os.PathLike | None = None) -> Path:
    """Make JAX store compiled programs in ``folder`` and load them in later processes.

    JAX does not cache programs that can raise run-time errors. Set ``EQX_ON_ERROR=off`` in the environment before
    importing ukjax to remove these checks from ``simulate``, which checks its results itself.

    Parameters
    ----------
    folder
        The cache folder. The default is JAX's setting ``JAX_COMPILATION_CACHE_DIR``, or else ``ukjax`` in the user's
        cache folder.

    Returns
    -------
    Path
        The cache folder.

    Raises
    ------
    InputError
        If ``folder`` is not the name of a folder.
    """
    if not isinstance(folder, str | os.PathLike | None) or folder == "":
        raise InputError(f"folder must be the name of a folder, got {folder!r}")
    folder = Path(folder) if folder else default_folder()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return folder


def default_folder() -> Path:
    """Return the cache folder of JAX's setting, or else ``ukjax`` in the user's cache folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or home / "ukjax")
