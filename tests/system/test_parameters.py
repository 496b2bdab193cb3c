"""Parameters of a model by name: fields, entries of arrays, and parts of modules, tuples and lists."""

import re
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import ukjax as uk
from ukjax._command.settings import with_settings
from ukjax._command.usage import UsageError
from ukjax._parameters import Parameters, check_settings, find, put, with_array


class Body(eqx.Module):
    mass: Array
    label: str = eqx.field(static=True)


class Gains(NamedTuple):
    P: Array
    D: Array


class Robot(eqx.Module):
    arm: Body
    bodies: tuple[Body, ...]
    tables: list[Array]
    gains: Gains
    words: tuple[str, ...] = ("no", "numbers")


def robot():
    bodies = tuple(Body(jnp.array(1.0 + i), f"body {i}") for i in range(3))
    tables = [jnp.arange(3.0), jnp.arange(6.0).reshape(2, 3)]
    return Robot(Body(jnp.array(7.0), "arm"), bodies, tables, Gains(jnp.array([4.0, 5.0]), jnp.array(6.0)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("arm.mass", 7.0),
        ("bodies[2].mass", 3.0),
        ("tables[0][1]", 1.0),
        ("tables[1][1,2]", 5.0),
        ("gains.P[1]", 5.0),
        ("gains.D", 6.0),
        ("gains[1]", 6.0),
    ],
)
def test_name_selects_and_replaces_one_number(name, value):
    parameters = Parameters.of(robot(), name)
    assert parameters.names == (name,)
    np.testing.assert_array_equal(parameters.first, [value])
    changed = put(robot(), parameters.places, [jnp.array(-1.0)])
    place, array = find(changed, name, "parameter")
    assert array[place.index or ()] == -1.0
    leaves = lambda model: np.concatenate([np.ravel(x) for x in eqx.filter(vars_of(model), eqx.is_array)])
    assert np.count_nonzero(leaves(changed) != leaves(robot())) == 1


def vars_of(model):
    return [*(body.mass for body in (model.arm, *model.bodies)), *model.tables, *model.gains]


def test_each_entry_of_an_array_has_a_name():
    assert Parameters.of(robot(), ["tables[0]", "bodies[0].mass"]).names == (
        "tables[0][0]",
        "tables[0][1]",
        "tables[0][2]",
        "bodies[0].mass",
    )
    bounded = Parameters.of(robot(), "tables[0]", {"tables[0][1]": (0.5, 2.0), "tables[0]": None})
    np.testing.assert_array_equal(bounded.lower, [-np.inf, 0.5, -np.inf])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bodies[3].mass", "tuple has 3 items, from [0] on"),
        ("bodies[0,1].mass", "tuple has 3 items, from [0] on"),
        ("bodies", "must be an array of numbers, got tuple"),
        ("bodies[0]", "must be an array of numbers, got Body"),
        ("bodies[0].mess", "Body has no number 'mess'; did you mean 'mass'? There are: mass"),
        ("words[0]", "Robot has no number 'words'. There are: arm, bodies, tables, gains"),
        ("tables[0][3]", "its array has shape (3,)"),
        ("tables[1][1]", "its array has shape (2, 3)"),
        ("tables[0][1][0]", "its array has shape (3,)"),
        ("arm.mass.x", "its array has shape ()"),
        ("arm[0].mass", "Body has 0 items"),
        ("bodies[2", "must be a name, such as m1, ma[2], arm.length or bodies[2].mass"),
    ],
)
def test_error_for_unknown_name_shows_which_part_is_wrong(name, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Parameters.of(robot(), name)


def test_settings_need_whole_arrays():
    check_settings(robot(), {"bodies[1].mass": 2.0, "tables[0]": np.ones(3)})
    assert with_array(robot(), "bodies[1].mass", jnp.array(9.0)).bodies[1].mass == 9.0
    with pytest.raises(ValueError, match="'tables\\[0\\]\\[1\\]' must be a whole array"):
        check_settings(robot(), {"tables[0][1]": 2.0})


def test_command_line_uses_the_same_names():
    named = uk.systems.ParallelRobot()
    changed: Any = with_settings(named, ["ma[1]=0.5", "xA=1,2,3"])[0]
    np.testing.assert_array_equal(changed.ma, named.ma.at[1].set(0.5))
    np.testing.assert_array_equal(changed.xA, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("ma[3]=1", "--set 'ma[3]': its array has shape (3,)"),
        ("ma[0]=1,2", "--set ma[0] needs one number, got 2"),
        ("ma.x=1", "--set 'ma.x': its array has shape (3,)"),
        ("ma[=1", "--set 'ma[' must be a name"),
        ("mo[0]=1", "--set knows no 'mo[0]'"),
    ],
)
def test_unknown_names_on_the_command_line_are_errors(assignment, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        with_settings(uk.systems.named("parallel_robot"), [assignment])
