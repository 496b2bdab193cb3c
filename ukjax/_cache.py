"""Compiled programs kept on disk, so that the second run of a script starts at once."""

import os
from pathlib import Path

import jax


def enable_compilation_cache(folder: str | os.PathLike | None = None) -> Path:
    """Let JAX keep what it compiles in ``folder`` and read it back in later processes.

    The default is JAX's own setting ``JAX_COMPILATION_CACHE_DIR`` if there is one, else ``ukjax`` in the user's cache
    folder. Programs that can raise errors while they run are never kept by JAX: setting ``EQX_ON_ERROR=off`` in the
    environment before ukjax is imported leaves these checks out of ``simulate``, which makes its own on the result.
    """
    if not isinstance(folder, str | os.PathLike | None) or folder == "":
        raise ValueError(f"folder must be the name of a folder, got {folder!r}")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(folder or os.environ.get("JAX_COMPILATION_CACHE_DIR") or home / "ukjax")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return folder
