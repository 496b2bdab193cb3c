"""The forces of a motion by name, against closed forms."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

G, LENGTH, MASS = 9.81, 0.7, 2.0
FALL = uk.MassForce(MASS * jnp.eye(2), MASS * jnp.array([0.0, -G]))
ROD = uk.Holonomic(lambda t, q: (q @ q - LENGTH**2) / (2 * LENGTH), name="rod")
NAMES = (("x", "m"), ("y", "m"))


def close(found, expected, tolerance=1e-11):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.fixture(scope="module")
def swing():
    return uk.simulate(uk.System(FALL, ROD, coordinates=NAMES), [LENGTH, 0.0], [0.0, -0.5], jnp.linspace(0, 1, 9))


def test_the_multiplier_of_a_rod_is_its_tension(swing):
    """The tension is m v²/l − m g y/l towards the pivot. The gradient of the row has length 1."""
    forces = swing.forces()
    assert list(forces) == ["applied", "rod"] and forces["rod"].kind == "constraint"
    tension = MASS * jnp.sum(swing.v**2, axis=1) / LENGTH - MASS * G * swing.q[:, 1] / LENGTH
    close(forces["rod"].multiplier[:, 0], -tension, 1e-7)  # error of the steps
    close(forces["rod"].force, swing.constraint_force)
    close(forces["applied"].force, jnp.broadcast_to(MASS * jnp.array([0.0, -G]), (9, 2)))
    close(forces["rod"].power, 0.0)
    close(forces.imbalance, 0.0)
    assert np.all(forces["rod"].is_unique) and np.all(forces["rod"].multiplier_is_unique)


def test_redundant_rods_share_force_and_are_not_unique():
    """Rows in other units carry the same force: the split does not depend on units."""
    wall = uk.Holonomic(lambda t, q: q[2:], name="wall")
    system = uk.System(
        uk.MassForce(MASS * jnp.eye(3), MASS * jnp.array([0.0, -G, 1.0])),
        (
            uk.Holonomic(lambda t, q: q[:2] @ q[:2] - LENGTH**2, name="rod"),
            uk.Holonomic(lambda t, q: 50 * (q[:2] @ q[:2] - LENGTH**2), name="second rod"),
            wall,
        ),
    )
    forces = uk.simulate(system, [LENGTH, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.1, 0.2]).forces()
    close(forces["rod"].force, forces["second rod"].force)
    assert not np.any(forces["rod"].is_unique) and not np.any(forces["second rod"].multiplier_is_unique)
    assert np.all(forces["wall"].is_unique)
    close(forces["wall"].multiplier[:, 0], -MASS)
    close(forces.imbalance, 0.0)
    assert "in sum" in repr(forces)


def test_moving_constraint_has_power():
    """A weight is lifted by y = t²/2: the force is m (g + 1), the power m (g + 1) t."""
    lift = uk.System(FALL, uk.Holonomic(lambda t, q: q[1] - t**2 / 2, name="lift"))
    ts = jnp.linspace(0.0, 1.0, 5)
    found = uk.simulate(lift, [0.0, 0.0], [0.0, 0.0], ts).forces()["lift"]
    close(found.force, jnp.broadcast_to(MASS * jnp.array([0.0, G + 1]), (5, 2)))
    close(found.power, MASS * (G + 1) * ts)


def test_friction_nonideal_and_contact_forces_are_separate():
    """A sliding block, and a weight on two legs at one point, of whose forces only the sum is unique."""
    weights = MASS * jnp.array([0.0, -G, -G])
    block = uk.System(
        uk.MassForce(MASS * jnp.eye(3), weights),
        (
            uk.Unilateral(lambda t, q: q[1], friction=0.3, slip=lambda t, q, v: v[:1], name="floor"),
            uk.Unilateral(lambda t, q: jnp.stack([q[2], 50 * q[2]]), name=("left", "right")),
        ),
        nonideal=lambda t, q, v: -0.5 * v,
    )
    motion = uk.simulate(block, [0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.1, 0.2])
    forces = motion.forces()
    assert [each.kind for each in forces.values()] == ["applied", "nonideal", *["contact"] * 3, "friction"]
    close(forces["floor"].multiplier[:, 0], MASS * G)
    close(forces["floor friction"].force[:, 0], -0.3 * MASS * G)
    close(forces["nonideal"].force, -0.5 * motion.v)
    close(forces["left"].force + forces["right"].force, jnp.broadcast_to(-weights * jnp.array([0.0, 0.0, 1.0]), (3, 3)))
    close(forces.imbalance, 0.0)
    for name, each in forces.items():
        is_unique = name not in ("left", "right")
        assert np.all(each.is_unique == is_unique) and np.all(each.multiplier_is_unique == is_unique), name


def test_control_force_is_separate_from_applied_force():
    pull = uk.control.Feedback(jnp.eye(2), lambda t, q, v: jnp.stack([jnp.sin(t), 1.0 + 0 * t]))
    motion = uk.simulate(uk.System(FALL, ROD, control=pull), [LENGTH, 0.0], [0.0, 0.0], [0.0, 0.2, 0.4])
    forces = motion.forces()
    close(forces["control"].force, motion.control)
    close(forces["applied"].force[:, 1], -MASS * G)
    close(forces.imbalance, 0.0)


def test_forces_of_batch_match_single_motion_and_have_derivatives(swing):
    system = uk.System(FALL, ROD)
    batch = uk.simulate(system, jnp.array([[LENGTH, 0.0]] * 2), jnp.array([[0.0, -0.5], [0.0, 1.0]]), swing.t)
    close(batch.forces()["rod"].multiplier[0], swing.forces()["rod"].multiplier)

    def first(mass):
        system = uk.System(uk.MassForce(mass * jnp.eye(2), mass * jnp.array([0.0, -G])), ROD)
        return uk.simulate(system, [LENGTH, 0.0], [0.0, -0.5], [0.0, 0.01], dt=0.01).forces()["rod"].multiplier[0, 0]

    assert jax.grad(first)(MASS) == pytest.approx(-(0.5**2) / LENGTH, abs=1e-12)


def test_rows_of_a_joint_of_a_mechanism_are_one_force():
    link = uk.load(uk.robots.path("four_bar"))
    forces = uk.simulate(link, *link.start({"crank": 0.5}), [0.0, 0.01]).forces()
    assert list(forces) == ["applied", "tip"] and len(forces["tip"].rows) == 3
    close(forces.imbalance, 0.0, 1e-10)


def test_table_and_errors(swing, tmp_path):
    forces = swing.forces()
    with open(forces.save(tmp_path / "forces.csv")) as file:
        header, *rows = csv.reader(file)
    assert header == [
        "t [s]", "applied on x [N]", "applied on y [N]", "power of applied [W]",
        "rod on x [N]", "rod on y [N]", "multiplier of rod", "power of rod [W]",
    ]  # fmt: skip
    close(np.array(rows, float)[:, 6], forces["rod"].multiplier[:, 0])
    with pytest.raises(uk.InputError, match="no force 'rood'.*'rod'"):
        forces["rood"]
    with pytest.raises(uk.InputError, match=r"must end in \.csv"):
        forces.save(tmp_path / "forces.txt")
    with pytest.raises(uk.InputError, match="needs the model"):
        swing.without_model().forces()


def test_figure_has_a_panel_per_coordinate(swing):
    figure = uk.plot.forces(swing.forces())
    assert [ax.get_ylabel() for ax in figure.axes] == ["force on x [N]", "force on y [N]"]
    assert [line.get_label() for line in figure.axes[1].lines] == ["M q̈", "applied", "rod"]
