"""Catalogue of the gallery. It does not import the mechanisms."""

from typing import NamedTuple


class Entry(NamedTuple):
    """Entry of the catalogue.

    Attributes
    ----------
    name
        Name of the mechanism and of its module.
    cls
        Name of its class.
    title
        Short description.
    source
        Publication.
    """

    name: str
    cls: str
    title: str
    source: str


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            "projectile",
            "Projectile",
            "Projectile in Cartesian or polar coordinates",
            "Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018), example 1",
        ),
        Entry(
            "spiral_particle",
            "SpiralParticle",
            "Particle driven along a logarithmic spiral",
            "Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018), section 8.1",
        ),
        Entry(
            "swarm",
            "Swarm",
            "Robots that gather and keep apart",
            "Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018), section 8.2",
        ),
        Entry(
            "flexible_joint_manipulator",
            "FlexibleJointManipulator",
            "Two-link manipulator with elastic joints",
            "Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018), section 8.3",
        ),
        Entry("scara", "Scara", "SCARA robot whose tool climbs along a helix", "Xu & Liu, Adv. Mech. Eng. 9(10), 2017"),
        Entry(
            "two_mass_spring",
            "TwoMassSpring",
            "Two masses and a spring, kept apart by one force",
            "Liu et al., IEEE/CAA J. Autom. Sin. 2, 382 (2015), section IV",
        ),
        Entry(
            "coordinated_robots",
            "CoordinatedRobots",
            "Two robots with six motors that lift one load",
            "Liu et al., IEEE/CAA J. Autom. Sin. 2, 382 (2015), sections V and VI",
        ),
        Entry(
            "parallel_robot",
            "ParallelRobot",
            "Planar parallel robot in 12 coordinates, moved by one torque",
            "Han et al., Appl. Math. Mech. 41 (2020), in Chinese, section 4.1",
        ),
        Entry(
            "parallel_robot_tracking",
            "ParallelRobotTracking",
            "Planar parallel robot whose three motors trace a line",
            "Han et al., Appl. Math. Mech. 41 (2020), in Chinese, section 4.2",
        ),
        Entry(
            "parallel_manipulator",
            "ParallelManipulator",
            "Redundant 2-DOF RRR manipulator: torques for a straight line",
            "Udwadia–Kalaba modelling of a redundant 2-DOF RRR manipulator, Adv. Mech. Eng. (2017)",
        ),
        Entry(
            "pendulum",
            "Pendulum",
            "Pendulum in Cartesian coordinates, its rod written twice",
            "IFToMM benchmark A01; Gonzalez et al., Multibody Syst. Dyn. 16 (2006)",
        ),
        Entry(
            "double_arm_pendulum",
            "DoubleArmPendulum",
            "Measured double pendulum: arms as free bodies, pins with friction",
            "Kaheman et al., arXiv:2205.06231 (2022)",
        ),
        Entry(
            "triple_arm_pendulum",
            "TripleArmPendulum",
            "Measured triple pendulum: arms as free bodies, pins with friction",
            "Kaheman et al., arXiv:2205.06231 (2022)",
        ),
        Entry(
            "acrobot",
            "Acrobot",
            "Measured double pendulum with a motor in each joint",
            "DFKI, double_pendulum, design A.0 (2022)",
        ),
        Entry("double_pendulum", "DoublePendulum", "Two rods as free bodies, pinned together", "standard"),
        Entry(
            "four_bar", "FourBar", "Four-bar linkage that passes its flat pose", "IFToMM benchmark A02 with one window"
        ),
        Entry(
            "andrews_squeezer",
            "AndrewsSqueezer",
            "Andrews' squeezing mechanism, seven bodies in three loops",
            "IVP test set, Mazzia & Magherini (2008)",
        ),
        Entry(
            "rough_incline",
            "RoughIncline",
            "Block that slides down a rough plane: a non-ideal constraint",
            "Udwadia & Kalaba, J. Appl. Mech. 68 (2001) 462",
        ),
        Entry(
            "knife_edge",
            "KnifeEdge",
            "Skate on an inclined plane",
            "Bloch, Nonholonomic Mechanics and Control (2003), section 1.6",
        ),
        Entry(
            "chaplygin_sleigh",
            "ChaplyginSleigh",
            "Sleigh on a knife edge behind its centre of mass",
            "Chaplygin (1911); Neimark & Fufaev (1972)",
        ),
        Entry("rolling_disk", "RollingDisk", "Thin disk that rolls without slipping", "Neimark & Fufaev (1972)"),
        Entry(
            "rigid_body",
            "RigidBody",
            "Free rigid body in unit quaternions, its 4 × 4 mass matrix singular",
            "Udwadia & Schutte, J. Appl. Mech. 77 (2010) 044505",
        ),
        Entry("cart_pole", "CartPole", "Cart whose motor makes a pole swing as prescribed", "standard"),
        Entry(
            "mobile_robot",
            "MobileRobot",
            "Wheeled robot whose two motors follow a path",
            "Sun et al., Nonlinear Dyn. 83 (2016) 1",
        ),
        Entry("bouncing_ball", "BouncingBall", "Ball that bounces until its impacts accumulate", "standard"),
        Entry(
            "friction_oscillator",
            "FrictionOscillator",
            "Mass on a spring with dry friction, which sticks",
            "standard; numbers of an example of Siconos",
        ),
        Entry("slack_rope", "SlackRope", "Mass on a rope that goes slack and taut again", "standard"),
        Entry(
            "rimless_wheel",
            "RimlessWheel",
            "Wheel without a rim that walks down a slope on its spokes",
            "McGeer, Int. J. Robotics Research 9(2) (1990) 62",
        ),
        Entry(
            "simplest_walker",
            "SimplestWalker",
            "Two legs that walk down a slope without a motor",
            "Garcia, Chatterjee, Ruina & Coleman, J. Biomech. Eng. 120 (1998) 281",
        ),
        Entry(
            "woodpecker",
            "Woodpecker",
            "Woodpecker toy that hammers its way down a pole",
            "Leine, van Campen & Glocker, J. Vib. Control 9 (2003) 25",
        ),
        Entry(
            "clearance_slider_crank",
            "ClearanceSliderCrank",
            "Slider-crank whose slider has play in its guide",
            "Flores, Leine & Glocker, Multibody Syst. Dyn. 23 (2010) 165",
        ),
    )
}
