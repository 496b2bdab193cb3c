"""The table of mistakes on the command line: each gives the stated error line and changes no files."""

import os
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from ukjax.__main__ import main

TABLE = Path(__file__).parents[1] / "mistakes" / "command_line.toml"
ROWS = [(group, row) for group, rows in tomllib.loads(TABLE.read_text(encoding="utf-8")).items() for row in rows]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run in a temporary folder that has folders and a pipe in place of files; the cache is elsewhere."""
    here = tmp_path / "here"
    for folder in ("folder", "folder.npz", "folder.csv"):
        (here / folder).mkdir(parents=True)
    os.mkfifo(here / "pipe.npz")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EQX_ON_ERROR", "raise")
    return here


def content(given) -> bytes:
    """Return the bytes of a file in a row of the table: text, or another form."""
    if isinstance(given, str):
        return given.encode()
    if "hex" in given:
        return bytes.fromhex(given["hex"])
    if "utf16" in given:
        return given["utf16"].encode("utf-16")
    before, part, times, after = given["repeated"]
    return (before + part * times + after).encode()


def exit_code(command: str):
    try:
        return main(shlex.split(command))
    except SystemExit as exit:
        return exit.code


@pytest.mark.parametrize(("group", "row"), ROWS, ids=[f"{group}-{row['command'][:60]}" for group, row in ROWS])
def test_mistake_gives_one_line_error(group, row, elsewhere, capsys):
    for name, given in row.get("files", {}).items():
        (elsewhere / name).write_bytes(content(given))
    before = {path: path.stat().st_mtime_ns for path in elsewhere.iterdir()}
    assert exit_code(row["command"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert row["says"] in printed.err and printed.err.startswith("ukjax"), printed.err
    assert printed.err.count("\n") == 1, printed.err
    assert {path: path.stat().st_mtime_ns for path in elsewhere.iterdir()} == before


def test_table_of_mistakes_is_long_and_has_no_duplicates():
    assert len(ROWS) >= 90
    assert len({(row["command"], str(row.get("files"))) for _, row in ROWS}) == len(ROWS)
    assert all(len(row["says"]) > 10 for _, row in ROWS)
