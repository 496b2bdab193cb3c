"""Singular poses of a five-bar and a four-bar against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.joints import Revolute

ROD = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0, 0.1, 0.1))
BASE, UPPER, LOWER = 0.6, 0.5, 0.7


@pytest.fixture(scope="module")
def five_bar():
    """Two motors at (0, 0) and (0.6, 0), links of 0.5 and 0.7 m on each side."""
    return uk.Mechanism(
        {"left": ROD, "left_tip": ROD, "right": ROD, "right_tip": ROD},
        {
            "a": Revolute("ground", "left"),
            "b": Revolute("left", "left_tip", at=(UPPER, 0, 0)),
            "c": Revolute("ground", "right", at=(BASE, 0, 0)),
            "d": Revolute("right", "right_tip", at=(UPPER, 0, 0)),
            "tip": Revolute("left_tip", "right_tip", at=(LOWER, 0, 0), to=(LOWER, 0, 0)),
        },
    )


def pose_of(x, y, left=1.0, right=-1.0):
    """Return coordinates of the five-bar with its tip at (x, y), for given signs of the elbows."""
    angles = []
    for base, sign in ((0.0, left), (BASE, right)):
        squared = (x - base) ** 2 + y**2
        elbow = np.arccos(np.clip((squared - UPPER**2 - LOWER**2) / (2 * UPPER * LOWER), -1, 1))
        shoulder = np.arctan2(y, x - base) + sign * np.arctan2(LOWER * np.sin(elbow), UPPER + LOWER * np.cos(elbow))
        angles += [shoulder, -sign * elbow]
    return np.array(angles)


def closed_form(q):
    """Return the matrices of Gosselin and Angeles: rows uᵢ · ẋ = (uᵢ · θᵢ-direction) θ̇ᵢ, uᵢ along the lower links."""
    rows, drives = [], []
    for shoulder, elbow in (q[:2], q[2:]):
        u = np.array([np.cos(shoulder + elbow), np.sin(shoulder + elbow)])
        rows.append(u)
        drives.append(UPPER * (u @ [-np.sin(shoulder), np.cos(shoulder)]))
    return np.array(rows), np.diag(drives)


def of(mechanism, q, **options):
    return uk.singularity(mechanism, q, ("a", "c"), "left_tip", at=(LOWER, 0, 0), **options)


def test_jacobian_of_a_five_bar_in_a_batch_matches_closed_form(five_bar):
    poses = np.array([pose_of(x, y) for x in (0.1, 0.3, 0.5) for y in (0.5, 0.7, 0.9)])
    found = of(five_bar, poses)
    assert np.all(found.kind == 0)
    for i, q in enumerate(poses):
        A, B = closed_form(q)
        J = np.linalg.solve(A, B)
        np.testing.assert_allclose(found.jacobian[i], [*J, [0, 0]], atol=1e-12)
        np.testing.assert_allclose(found.manipulability[i], abs(np.linalg.det(J)), rtol=1e-11)
        np.testing.assert_allclose(found.dexterity[i], 1 / np.linalg.cond(J), rtol=1e-11)


def test_singular_poses_of_a_five_bar(five_bar):
    """Kind 1: a stretched arm. Kind 2: lower links in line."""
    reach = UPPER + LOWER
    stretched = pose_of(reach * np.cos(1.2), reach * np.sin(1.2))
    start = np.arccos((BASE / 2 - LOWER) / UPPER)
    in_line = np.array([start, -start, np.pi - start, start])
    (A, B), (A_in_line, B_in_line) = closed_form(stretched), closed_form(in_line)
    assert abs(np.linalg.det(B)) < 1e-7 < abs(np.linalg.det(A))
    assert abs(np.linalg.det(A_in_line)) < 1e-12 < abs(np.linalg.det(B_in_line))
    first, second = of(five_bar, stretched), of(five_bar, in_line)
    assert first.kind == 1 and first.of_inputs > 0.05
    assert second.kind == 2 and second.of_output > 0.05


def test_flat_parallelogram_is_singular_of_kind_3():
    """A planar four-bar with a crank of 1 m and a coupler of 2 m; it has redundant rows."""
    bars = uk.Mechanism(
        {"crank": ROD, "coupler": ROD, "rocker": ROD},
        {
            "crank": Revolute("ground", "crank"),
            "pin": Revolute("crank", "coupler", at=(1, 0, 0)),
            "rocker": Revolute("ground", "rocker", at=(2, 0, 0)),
            "close": Revolute("coupler", "rocker", at=(2, 0, 0), to=(1, 0, 0)),
        },
    )
    output = lambda q: q[2:3]
    at = lambda angle: uk.singularity(bars, jnp.array([angle, -angle, angle]), "crank", output)
    assert at(0.0).kind == 3
    found = at(0.5)
    assert found.kind == 0
    np.testing.assert_allclose(found.jacobian, [[1.0]], rtol=1e-12)
    slope = jax.grad(lambda angle: at(angle).of_inputs)(0.5)
    difference = (at(0.5 + 1e-5).of_inputs - at(0.5 - 1e-5).of_inputs) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-6)


def test_planar_arm_with_three_motors_and_two_freedoms_of_its_tip():
    joints = {"a": Revolute("ground", "one"), "b": Revolute("one", "two", at=(1, 0, 0))}
    arm = uk.Mechanism({"one": ROD, "two": ROD, "three": ROD}, joints | {"c": Revolute("two", "three", at=(1, 0, 0))})
    options: Any = dict(at=(1, 0, 0), freedoms=2)
    assert uk.singularity(arm, [0.3, 0.5, 0.7], ("a", "b", "c"), "three", **options).kind == 0
    assert uk.singularity(arm, [0.3, 0.0, 0.0], ("a", "b", "c"), "three", **options).kind == 1
    bent = uk.singularity(arm, [0.3, 0.5, 0.7], ("a", "b", "c"), "three", **options)
    ends = np.cumsum([0.3, 0.5, 0.7])
    J = np.array([[-np.sum(np.sin(ends[i:])), np.sum(np.cos(ends[i:]))] for i in range(3)]).T
    np.testing.assert_allclose(bent.manipulability, np.sqrt(np.linalg.det(J @ J.T)), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    (
        (lambda m: uk.singularity(m, [0.0], "a", "left"), "q must have shape"),
        (lambda m: uk.singularity(m, np.ones(4), "z", "left"), "inputs names no joint 'z'"),
        (
            lambda m: uk.singularity(m, np.ones(4), ("a", "a"), "left"),
            "inputs must name each joint once, got 'a' twice",
        ),
        (lambda m: uk.singularity(m, np.ones(4), "a", lambda q: q[:1], at=(1, 0, 0)), "at and length must be left out"),
        (lambda m: uk.singularity(m, np.ones(4), "a", "left", freedoms=2), "freedoms must be at most 1"),
        (lambda m: uk.singularity(m, np.ones(4), (), "left"), "inputs must be names"),
        (lambda m: uk.singularity(m, np.ones(4), "a", "lef"), "output must be the name of a body"),
    ),
)
def test_bad_input_raises(five_bar, call, words):
    with pytest.raises(uk.InputError, match=words):
        call(five_bar)
