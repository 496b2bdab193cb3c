"""``ukjax sweep``: arguments, results and figure."""

import importlib.metadata
import json

import numpy as np
import pytest

import ukjax as uk
from ukjax.__main__ import main
from ukjax._command import sweep as sweep_module

pytestmark = pytest.mark.optimised


@pytest.fixture(autouse=True)
def cache_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EQX_ON_ERROR", "raise")


WORDS = "sweep pendulum --over length=0.5:1.5:4 --over m=lognormal(2,0.1) --members 12 --t1 0.5 --dt 0.01 --seed 3"


@pytest.mark.slow
def test_sweep_can_be_reported_resumed_summarised_and_plotted(tmp_path, capsys):
    words = [*WORDS.split(), "--out", str(tmp_path / "s"), "--json"]
    assert main([*words, "--plot", str(tmp_path / "map.png")]) == 0
    said = capsys.readouterr()
    assert said.err == "ukjax sweep: 12 members in one chunk, 960 B\n"
    told = json.loads(said.out)
    assert told["members"] == told["done"] == told["finished"] == 12 and told["failed"] == 0
    assert list(told["over"]) == ["length", "m"] and (tmp_path / "map.png").stat().st_size > 5000
    found = uk.open_ensemble(tmp_path / "s")
    np.testing.assert_array_equal(found.over["length"], np.tile(np.linspace(0.5, 1.5, 4), 3))
    model = uk.systems.Pendulum(length=0.5, m=found.over["m"][0])
    own = uk.simulate(model, *uk.project(model, 0.0, *model.start()), [0.0, 0.5], dt=0.01, solver=uk.RungeKutta4())
    np.testing.assert_allclose(found.q[0, 0], own.q[-1], atol=1e-12)

    assert main(words) == 2
    assert "exists: pass --resume to continue that sweep" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["ends"] == told["ends"]
    assert main(["sweep", "--summary", str(tmp_path / "s")]) == 0
    table = capsys.readouterr().out
    assert "12 members of Pendulum" in table and "reached its last time" in table and "median" in table


@pytest.mark.slow
def test_ranks_write_to_one_folder(tmp_path, capsys):
    words = [*WORDS.split(), "--out", str(tmp_path / "s"), "--json", "--world", "2", "--chunk", "1"]
    assert main([*words, "--rank", "0"]) == main([*words, "--rank", "1"]) == 0
    assert json.loads(capsys.readouterr().out.split("\n}\n")[1] + "\n}")["done"] == 12


def test_folder_name_with_zarr_suffix_selects_the_format(tmp_path, capsys, monkeypatch):
    words = [*WORDS.split(), "--out", str(tmp_path / "s.zarr"), "--json"]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert (tmp_path / "s.zarr" / "q" / "zarr.json").exists()
    assert main(["sweep", "--summary", str(tmp_path / "s.zarr"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ends"] == said["ends"]
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.18.3")
    for again in ([*words, "--resume"], ["sweep", "--summary", str(tmp_path / "s.zarr")]):
        assert main(again) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "pip install 'ukjax[zarr]'" in error


@pytest.mark.slow
def test_two_workers_give_the_same_files(tmp_path):
    words = "sweep four_bar --over theta1=-0.5:0.5:20 --over dtheta1=1:2:20 --t1 0.2 --fix-swept --chunk 1".split()
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert main([*words, "--out", str(tmp_path / "b"), "--workers", "2"]) == 0
    for path in (tmp_path / "a").glob("*.npz"):
        one, other = np.load(path), np.load(tmp_path / "b" / path.name)
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize(
    ("words", "values"),
    (
        ("a=1:2", uk.Uniform(1.0, 2.0)),
        ("a=1:2:3", uk.Grid(1.0, 2.0, 3)),
        ("a=1,2,3", [1.0, 2.0, 3.0]),
        ("a=5", [5.0]),
        ("ma[0,1]=uniform(1,2)", uk.Uniform(1.0, 2.0)),
    ),
)
def test_values_of_over_are_parsed(words, values):
    name, parsed = sweep_module._parse(words)
    assert name == words.partition("=")[0] and sweep_module._swept_values(parsed) == values


def test_distributions_of_over_are_those_of_scipy():
    of = lambda words: sweep_module._swept_values(sweep_module._parse(f"a={words}")[1])
    assert of("normal(3,0.5)").mean() == 3.0 and of("normal(3,0.5)").std() == 0.5
    assert of("lognormal(15,0.1)").median() == pytest.approx(15.0)
    assert np.std(np.log(of("lognormal(15,0.1)").rvs(4000, random_state=0))) == pytest.approx(0.1, rel=0.05)
