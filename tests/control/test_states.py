"""Controls and motors with first-order states, against matrix exponentials of linear systems."""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import ukjax as uk
from ukjax._view.scene import scene
from ukjax.control import PID, DCMotor, DynamicFeedback, Feedback, LowPass, Sampled

TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
TS = np.linspace(0, 2, 5)
FRICTION, LOAD = 0.3, 2.0
CART = uk.MassForce(jnp.eye(1), lambda t, q, v: LOAD - FRICTION * v)


def exact(A, b, x0, ts=TS):
    """x(t) for ẋ = A x + b."""
    n = len(b)
    whole = np.zeros((n + 1, n + 1))
    whole[:n, :n], whole[:n, n] = A, b
    return np.array([expm(whole * t) @ np.append(x0, 1) for t in ts])[:, :n]


def state_of(motion):
    return np.concatenate([motion.q, motion.v], axis=-1)


class Voltage(Feedback):
    """A constant voltage."""

    def __init__(self, voltage):
        super().__init__(jnp.eye(1), voltage, inputs=[("supply", "V")])


J, B, K, R, L = 0.02, 0.1, 0.5, 1.2, 0.05
ROTOR = uk.MassForce(jnp.array([[J]]), lambda t, q, v: -B * v)
MOTOR = np.array([[0, 1, 0], [0, -B / J, K / J], [0, -K / L, -R / L]])


def motor(constant=K, voltage=3.0):
    control = DCMotor(Voltage(jnp.array([voltage])), resistance=R, inductance=L, constant=constant)
    return uk.System(ROTOR, control=control, coordinates=[("theta", "rad")])


def test_step_response_of_a_motor_matches_closed_form():
    motion = uk.simulate(motor(), [0.0], [0.0], TS, **TIGHT)
    np.testing.assert_allclose(state_of(motion), exact(MOTOR, [0, 0, 3 / L], [0, 0, 0]), rtol=0, atol=1e-11)
    assert list(motion.states) == ["current supply"] and motion.equations is motion.equations
    np.testing.assert_array_equal(motion.states["current supply"], motion.v[:, 1])
    assert motion.directions == (("theta", "rad"), ("current supply", "A s"))
    np.testing.assert_array_equal(motion.control, 3.0)


def test_motor_in_a_batch_in_single_steps_and_linearised():
    starts = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # speed and current
    batch = uk.simulate(motor(), np.zeros((3, 1)), starts, TS, dt=0.01)
    for member, start in enumerate(starts):
        expected = exact(MOTOR, [0, 0, 3 / L], [0, *start])
        np.testing.assert_allclose(state_of(batch)[member], expected, rtol=0, atol=1e-9)
    assert batch.states["current supply"].shape == (3, 5)
    state = uk.initial_state(motor(voltage=0.0), [0.0], [0.0])
    state = uk.step(motor(voltage=0.0), state, 0.5, u=[3.0], steps=200)
    np.testing.assert_allclose(np.append(state.q, state.v), exact(MOTOR, [0, 0, 3 / L], [0, 0, 0])[1], atol=1e-8)
    linear = uk.linearize(uk.with_states(motor()), [0.0])
    np.testing.assert_allclose(linear.A, MOTOR, atol=1e-12)
    np.testing.assert_allclose(linear.B[:, 0], [0, 0, 1 / L], atol=1e-12)
    assert [name for name, _ in linear.states] == ["theta", "dtheta", "current supply"]


@pytest.mark.slow
def test_motor_derivatives_and_interpolation():
    speed = lambda constant: uk.simulate(motor(constant), [0.0], [0.0], TS, dt=0.01).v[-1, 0]
    ahead, behind = (speed(K + change) for change in (1e-5, -1e-5))
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(jax.jit(derivative(speed))(K), (ahead - behind) / 2e-5, rtol=1e-7)
    motion = uk.simulate(motor(), [0.0], [0.0], TS, **TIGHT)
    expected = exact(MOTOR, [0, 0, 3 / L], [0, 0, 0], np.array([0.3, 1.1]))
    np.testing.assert_allclose(state_of(motion([0.3, 1.1])), expected, rtol=0, atol=1e-11)


def pid(**gains):
    return PID(jnp.eye(1), lambda t, q: q[:1], 1.0, **gains)


def test_property_control_is_evaluated_once():
    """Systems of the gallery build their control at each access."""

    class Counted(uk.systems.CartPole):
        asked = []

        @property
        def control(self):
            self.asked.append(1)
            return super().control

    cart = Counted()
    assert uk.with_states(cart) is cart and len(cart.asked) == 1


def test_integral_gain_removes_the_steady_state_error():
    gains = {"kp": 4.0, "ki": 1.5, "kd": 2.0}
    ts = np.array([0.0, 1.0, 3.0, 60.0])
    motion = uk.simulate(uk.System(CART, control=pid(**gains)), [0.0], [0.0], ts, **TIGHT)
    A = [[0, 1, 0], [-4, -FRICTION - 2, 1.5], [-1, 0, 0]]
    np.testing.assert_allclose(state_of(motion), exact(A, [0, 4 + LOAD, 1], [0, 0, 0], ts), rtol=0, atol=1e-10)
    np.testing.assert_allclose(motion.q[-1], 1.0, atol=1e-9)  # without ki: 1 + LOAD / kp
    np.testing.assert_allclose(motion.control[-1], -LOAD, atol=1e-8)


def test_pid_controller_with_a_low_pass_filter_and_a_motor():
    """Five states in series: x, v, the integral, the current, and the filtered voltage."""
    gains, T = {"kp": 4.0, "ki": 1.5, "kd": 2.0}, 0.2
    driven = LowPass(DCMotor(pid(**gains), resistance=1.0, inductance=0.1, constant=0.8), T, initial=0.5)
    motion = uk.simulate(uk.System(CART, control=driven), [0.0], [0.0], TS, **TIGHT)
    A = np.array(
        [
            [0, 1, 0, 0, 0],
            [0, -FRICTION, 0, 0.8, 0],
            [-1, 0, 0, 0, 0],
            [0, -8, 0, -10, 10],
            [-4 / T, -2 / T, 1.5 / T, 0, -1 / T],
        ]
    )
    expected = exact(A, [0, LOAD, 1, 0, 4 / T], [0, 0, 0, 0, 0.5])
    np.testing.assert_allclose(state_of(motion), expected, rtol=0, atol=1e-10)
    assert list(motion.states) == ["integral u1", "current u1", "filtered u1"]


@pytest.mark.slow
def test_states_of_a_mechanism_with_a_stop_an_event_and_constraints():
    """A hinge with a stop; its motor has a filter. The filtered torque matches its closed form."""
    arm = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0.0, 0.1, 0.1))
    hinge = uk.joints.Revolute("ground", "arm", axis="z", limits=(-1.0, 0.5), restitution=0.3)
    robot = uk.Mechanism(
        {"arm": arm}, {"hinge": hinge}, gravity=(0, 0, -9.81), actuators=[uk.Actuator("motor", "hinge")]
    )
    driven = robot.with_stops().driven(LowPass(robot.motors({"motor": 0.3}), 0.1))
    half = uk.Event(lambda t, q, v: v[1] - 0.15, "rising", ends=False, name="half")
    motion = uk.simulate(driven, [0.0], [0.0], TS, event=half, **TIGHT)
    expected = 0.3 * (1 - np.exp(-TS / 0.1))
    np.testing.assert_allclose(motion.states["filtered motor"], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.motors.force[:, 0], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.events.times("half")[0], 0.1 * np.log(2), rtol=0, atol=1e-12)
    assert int(motion.contacts.impacts) > 0 and np.all(motion.q <= 0.5 + 1e-12)
    fall = 0.3 / 0.35 * (TS**2 / 2 - 0.1 * TS + 0.01 * (1 - np.exp(-TS / 0.1)))  # before the stop
    np.testing.assert_allclose(motion.q[1, 0], fall[1], rtol=0, atol=1e-11)


def test_static_friction_acts_beside_states():
    """A force s with ṡ = 1 moves a mass of 1 kg from 2 N on, the static friction. Sliding friction is 1 N."""
    ramp = DynamicFeedback([[1.0]], lambda t, q, v, s: s, lambda t, q, v, s: jnp.ones(1))
    friction = uk.Coulomb(lambda t, q, v: v, limit=1.0, static=2.0)
    system = uk.System(uk.MassForce(jnp.eye(1), jnp.zeros(1)), friction, control=ramp)
    motion = uk.simulate(system, [0.0], [0.0], [0.0, 1.9, 2.5], dt=0.1)
    np.testing.assert_array_equal(motion.contacts.sticking[:, 0], [True, True, False])
    slid = 0.5**3 / 6 + 0.5**2 / 2  # q̈ = s − 1
    np.testing.assert_allclose(motion.q[:, 0], [0, 0, slid], rtol=0, atol=1e-12)


def test_velocity_constraint_does_not_act_on_states():
    """A velocity constraint couples two masses into one of 3 kg. A control state decays, and is the force."""
    masses = uk.MassForce(jnp.diag(jnp.array([1.0, 2.0])), jnp.zeros(2))
    couple = uk.Nonholonomic(lambda t, q, v: v @ jnp.array([1.0, -1.0]))
    leak = DynamicFeedback(
        jnp.array([[1.0], [0.0]]), lambda t, q, v, s: s, lambda t, q, v, s: -2 * s, 3.0, states=[("pressure", "Pa")]
    )
    motion = uk.simulate(uk.System(masses, couple, control=leak), [0.0, 0.0], [0.0, 0.0], TS, **TIGHT)
    np.testing.assert_allclose(motion.states["pressure"], 3 * np.exp(-2 * TS), rtol=0, atol=1e-11)
    np.testing.assert_allclose(motion.v[:, :2], np.tile((1 - np.exp(-2 * TS)) / 2, (2, 1)).T, rtol=0, atol=1e-11)
    np.testing.assert_allclose(motion.constraint_force[:, 2], 0, atol=1e-15)


def hinge(control):
    """A pendulum of 1 kg with a motor; ``control`` is a function of the motors of the mechanism."""
    arm = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0.0, 0.1, 0.1))
    robot = uk.Mechanism({"arm": arm}, {"hinge": uk.joints.Revolute("ground", "arm", axis="y")})
    return robot.driven(control(robot.along("hinge")))


@pytest.fixture(scope="module")
def filtered():
    """A motion with a torque command of 2 N m; the filtered torque starts at 1 N m."""
    law = lambda B: LowPass(Feedback(B, jnp.array([2.0]), inputs=[("motor", "N m")]), 0.1, initial=1.0)
    return uk.simulate(hinge(law), [0.1], [0.2], TS, dt=0.05)


def test_reactions_and_power_use_the_filtered_torque(filtered):
    """The torque is the state s. Reactions follow from Newton's and Euler's equations of the arm."""
    start = np.array([0.1]), np.array([0.2]), np.array([1.0])  # initial value of the filter
    later = filtered.q[1], filtered.v[1, :1], filtered.v[1, 1:]
    for t, (q, v, s), given in ((0.0, start, [0.2]), (TS[1], later, filtered.v[1])):
        found = filtered.model.reactions(t, q, given)["hinge"]
        (angle,), (rate,), (torque,) = (np.asarray(x) for x in (q, v, s))
        outward = np.array([np.cos(angle), 0, -np.sin(angle)])
        turning = (torque + 9.81 * 0.5 * np.cos(angle)) / (0.1 + 0.5**2)
        acceleration = 0.5 * (turning * np.cross([0, 1, 0], outward) - rate**2 * outward)
        np.testing.assert_allclose(found.force, acceleration + [0, 0, 9.81], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.moment, [0, torque, 0], rtol=1e-12, atol=1e-12)
    control = filtered.forces()["control"]
    np.testing.assert_allclose(control.power, filtered.v[:, 0] * filtered.states["filtered motor"], rtol=1e-12)
    assert control.force.shape == (5, 1)
    np.testing.assert_allclose(
        uk.acceleration(filtered.model, TS, filtered.q, filtered.v), filtered.acceleration, rtol=1e-12
    )


def test_pages_and_saved_files_contain_control_states(filtered, tmp_path):
    page = scene(filtered, forces=True)
    assert [link["name"] for link in page["links"]] == ["arm"]
    assert "forces of joints" in [arrow["name"] for arrow in page["arrows"]]
    names = {each["title"]: each["names"] for each in page["histories"]}
    assert names["velocities [rad/s]"] == ("dhinge",) and names["states [N m]"] == ("filtered motor",)
    for suffix in ("npz", "nc"):
        found = uk.load_trajectory(filtered.save(tmp_path / f"motion.{suffix}"))
        np.testing.assert_array_equal(found.states["filtered motor"], filtered.v[:, 1])
        assert found.named_states == (("filtered motor", "N m"),) and found.directions == filtered.directions
    header = filtered.save(tmp_path / "motion.csv").read_text().splitlines()[0].split(",")
    assert header[1:6] == ["hinge [rad]", "dhinge [rad/s]", "ddhinge [rad/s^2]", "filtered motor [N m]",
                           "rate of filtered motor [N m/s]"]  # fmt: skip


@pytest.mark.slow
def test_explore_a_system_with_control_states(filtered):
    exploration = uk.explore(filtered.model, ["hinge", "control.time_constant"], q0=[0.1], v0=[0.2], t1=2.0, samples=5)
    motion = exploration.motion({"control.time_constant": 0.2})
    torque = 2 - np.exp(-TS / 0.2)
    np.testing.assert_allclose(motion.states["filtered motor"], torque, atol=1e-5)


def test_equilibrium_of_a_motor_with_integral_control():
    """A cart positioned by a motor: the force 0.8 i balances the load, and the voltage ki s that of the resistance."""
    motor = DCMotor(pid(kp=4.0, ki=1.5, kd=2.0), resistance=1.2, inductance=0.1, constant=0.8)
    found = uk.equilibrium(uk.System(CART, control=motor, coordinates=[("x", "m")]), [0.2])
    current = -LOAD / 0.8
    np.testing.assert_allclose(found.q, 1.0, rtol=1e-9)
    np.testing.assert_allclose(found.v, [0, 1.2 * current / 1.5, current], rtol=1e-9)
    A = [[0, 1, 0, 0], [0, -FRICTION, 0, 0.8], [-1, 0, 0, 0], [-40, -28, 15, -12]]
    np.testing.assert_allclose(
        np.sort_complex(found.linear.eigenvalues), np.sort_complex(np.linalg.eigvals(A)), rtol=1e-9
    )
    assert bool(found.stable) and found.linear.states[2] == ("integral u1", "")


STIFFNESS, DAMPING, LAG, OMEGA = 4.0, 0.3, 0.5, 1.7


def forced(amplitude):
    """q̈ + DAMPING q̇ + STIFFNESS q = amplitude cos ωt + s,  LAG ṡ = −1.5 q − s."""
    force = lambda t, q, v: -STIFFNESS * q - DAMPING * v + amplitude * jnp.cos(OMEGA * t)
    filtered = LowPass(Feedback(jnp.eye(1), lambda t, q, v: -1.5 * q), LAG)
    return uk.System(uk.MassForce(jnp.eye(1), force), control=filtered)


@pytest.mark.slow
def test_periodic_motion_and_branch_with_a_filter_match_the_frequency_response():
    X = 1 / (STIFFNESS - OMEGA**2 + 1j * OMEGA * DAMPING + 1.5 / (1 + 1j * OMEGA * LAG))
    start = [X.real, (1j * OMEGA * X).real, (-1.5 * X / (1 + 1j * OMEGA * LAG)).real]
    orbit = uk.periodic(forced(1.0), [0.2], [0.0], 2 * np.pi / OMEGA)
    np.testing.assert_allclose([*orbit.q, *orbit.v], start, atol=1e-12)
    A = np.array([[0, 1, 0], [-STIFFNESS, -DAMPING, 1], [-1.5 / LAG, 0, -1 / LAG]])
    expected = np.linalg.eigvals(expm(A * 2 * np.pi / OMEGA))
    np.testing.assert_allclose(np.sort_complex(orbit.multipliers), np.sort_complex(expected), atol=1e-11)
    branch = uk.continuation(forced, orbit, 1.0, until=2.0, points=3)
    scaled = np.concatenate([branch.q, branch.v], axis=1) / np.asarray(branch.parameter)[:, None]
    np.testing.assert_allclose(scaled, [start] * 3, atol=1e-11)


def test_integral_gain_at_which_oscillations_appear():
    """q̈ + c q̇ + k sin q + (q − 0.1) + p ∫(q − 0.1) dt = load: a Hopf point at p = c (k cos 0.1 + 1), by Routh."""

    def controlled(ki):
        force = lambda t, q, v: -STIFFNESS * jnp.sin(q) - DAMPING * v + 0.4
        law = PID(jnp.eye(1), lambda t, q: q, 0.1, kp=1.0, ki=ki)
        return uk.System(uk.MassForce(jnp.eye(1), force), control=law)

    branch = uk.continuation(controlled, [0.1], 0.5, until=2.0)
    (hopf,) = branch.special
    stiffness = STIFFNESS * np.cos(0.1) + 1
    assert hopf.kind == "Hopf" and hopf.period is not None
    np.testing.assert_allclose(hopf.parameter, DAMPING * stiffness, rtol=1e-11)
    np.testing.assert_allclose(hopf.period, 2 * np.pi / np.sqrt(stiffness), rtol=1e-10)
    integral = (STIFFNESS * np.sin(0.1) - 0.4) / hopf.parameter
    np.testing.assert_allclose([*hopf.q, *hopf.v], [0.1, 0.0, integral], atol=1e-11)


def test_members_of_an_ensemble_have_separate_initial_control_states():
    over = {"control.own_initial[0]": [0.0, 1.0, 2.0], "control.constant": [0.5, 0.6, 0.7]}
    swept = uk.ensemble(motor(), over, 3, ts=TS, q0=[0.0], v0=[0.0], dt=0.01)
    for member, (current, constant) in enumerate(zip(*over.values(), strict=True)):
        A = [[0, 1, 0], [0, -B / J, constant / J], [0, -constant / L, -R / L]]
        expected = exact(A, [0, 0, 3 / L], [0, 0, current])
        np.testing.assert_allclose(swept.v[member], expected[:, 1:], rtol=0, atol=1e-8)


@pytest.mark.slow
def test_fit_estimates_a_motor_constant_from_the_angle():
    ts = np.linspace(0, 0.5, 26)
    angle = exact(MOTOR, [0, 0, 3 / L], [0, 0, 0], ts)[:, :1]
    found = uk.fit(motor(0.4), uk.Experiment(ts, angle, ([0.0], [0.0])), "control.constant", fit_starts=False)
    np.testing.assert_allclose(found.values, K, rtol=1e-5)


def test_system_with_states_and_a_kinematic_map():
    """A mass whose velocity is half the rate of its coordinate."""
    plant = {"kinematic_map": lambda q, v: 2 * v, "control": pid(kp=0.0)}
    motion = uk.simulate(uk.System(uk.MassForce(jnp.eye(1), jnp.zeros(1)), **plant), [0.0], [0.25], TS, dt=0.5)
    np.testing.assert_allclose(motion.states["integral u1"], TS - TS**2 / 4, atol=1e-12)


def test_states_of_two_filters_have_distinct_names():
    twice = uk.control.LowPass(uk.control.LowPass(pid(kp=1.0), 0.1), 1.0)
    assert [name for name, _ in twice.states] == ["integral u1", "filtered u1", "filtered u1 2"]


def test_bad_input_raises():
    system = uk.System(CART, control=pid(kp=1.0))
    states = r"first-order states \(integral u1\)"
    for use in (lambda q: system.command(0.0, q, q), lambda q: system(0.0, q, [0.0, 0.0])):
        with pytest.raises(uk.InputError, match=rf"{states}, .* use ukjax.with_states\(system\)"):
            use([0.0])
    clash = uk.System(CART, control=pid(kp=1.0), coordinates=[("integral u1", "m")])
    with pytest.raises(uk.InputError, match="control has a state 'integral u1', which is the name of a coordinate"):
        uk.simulate(clash, [0.0], [0.0], TS)
    record = uk.Experiment(TS, np.zeros(5), np.zeros((5, 2)))
    named = uk.System(CART, control=pid(kp=1.0), coordinates=[("x", "m")])
    with pytest.raises(uk.InputError, match=r"start must have the states of the control \(integral u1\) after v0"):
        uk.fit(named, record, "control.kp[0]", segments=2)
    with pytest.raises(uk.InputError, match=rf"solver=Rattle\(\) is not available for .* {states}"):
        uk.simulate(system, [0.0], [0.0], TS, solver=uk.Rattle(), dt=0.1)
    with pytest.raises(
        uk.InputError, match=r"v0 must have 1 velocities, or these and .* \(integral u1\), got shape \(3,\)"
    ):
        uk.simulate(system, [0.0], [0.0, 0.0, 0.0], TS)
    with pytest.raises(uk.InputError, match="control must be a control of ukjax.control, .* got a sampled one"):
        LowPass(Sampled(Voltage(1.0), 0.1), 0.1)
    with pytest.raises(uk.InputError, match="time_constant must be"):
        LowPass(Voltage(jnp.ones(1)), 0.0)
    with pytest.raises(uk.InputError, match="must have one entry per input"):
        LowPass(Voltage(jnp.ones(1)), [0.1, 0.2, 0.3], [1.0, 2.0])
    with pytest.raises(uk.InputError, match=r"kp, ki, kd, initial and target must be numbers or have shape \(p,\)"):
        pid(kp=[1.0, 2.0], ki=[1.0, 2.0, 3.0])
    with pytest.raises(uk.InputError, match="states must name 2 states, one per entry of initial, got 1"):
        DynamicFeedback(jnp.eye(1), lambda t, q, v, s: s[:1], lambda t, q, v, s: -s, [0.0, 0.0], states=[("a", "")])


def test_one_number_of_actuators_is_for_each_input_of_constant_columns():
    fall = uk.MassForce(np.eye(2), [0.0, -9.81])
    law = uk.control.Feedback(np.eye(2), lambda t, q, v: -q)
    integral = lambda kp: uk.control.PID(np.eye(2), lambda t, q: q, kp=kp)
    move = lambda control: uk.simulate(uk.System(fall, control=control), [1.0, 2.0], [0.0, 0.0], [0.0, 0.1], dt=0.05)
    for one, each in (
        (uk.control.LowPass(law, 0.1), uk.control.LowPass(law, [0.1, 0.1])),
        (integral(2.0), integral([2.0, 2.0])),
    ):
        np.testing.assert_array_equal(move(one).v, move(each).v)
