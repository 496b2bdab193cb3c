"""Unconstrained dynamics, given by energies or by M and Q."""

from .base import AbstractDynamics as AbstractDynamics
from .explicit import MassForce as MassForce
from .lagrangian import Lagrangian as Lagrangian
