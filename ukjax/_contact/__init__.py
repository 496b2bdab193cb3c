"""Contact and dry friction: modes, forces, and impacts of systems with nonsmooth constraints.

Contact forces act on the constrained motion: with P = M⁻¹ − M⁻¹Aᵀ(A M⁻¹Aᵀ)⁺A M⁻¹ of the Udwadia–Kalaba equation, a
force Jᵀλ changes the accelerations of the contacts by W λ, W = J P Jᵀ (the Delassus operator). Redundant rows of A do
not enter W.
"""
