"""A C loop written by hand for one mechanism, P1, that uses its structure."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ukjax as uk

SOURCE = r"""
#include <math.h>

/* p: for every chain M11 without its cosine, M22, coupling; then L. Accelerations of `count` members (q, v of 6). */
void accelerations(int count, const double *p, const double *q, const double *v, double *out) {
  const double L = p[9];
  for (int k = 0; k < count; k++, q += 6, v += 6, out += 6) {
    double W[3][3], h[3][2], J[3][4], a[3][2], inverse[3][3];
    for (int i = 0; i < 3; i++) {
      const double qa = q[2 * i], va = v[2 * i], vb = v[2 * i + 1], qab = qa + q[2 * i + 1], w = va + vb;
      const double sa = sin(qa), ca = cos(qa), sb = sin(qab), cb = cos(qab);
      const double cosine = cb * ca + sb * sa, sine = sb * ca - cb * sa;
      const double bent = p[3 * i + 2] * cosine, load = p[3 * i + 2] * sine, M22 = p[3 * i + 1];
      const double M11 = p[3 * i] + 2 * bent, M12 = M22 + bent, d = 1 / (M11 * M22 - M12 * M12);
      const double Q1 = load * (2 * va + vb) * vb, Q2 = -load * va * va;
      const double U = inverse[i][0] = d * M22, X = inverse[i][1] = -d * M12, Y = inverse[i][2] = d * M11;
      a[i][0] = U * Q1 + X * Q2;
      a[i][1] = X * Q1 + Y * Q2;
      J[i][1] = -L * sb; J[i][0] = J[i][1] - L * sa; J[i][3] = L * cb; J[i][2] = J[i][3] + L * ca;
      h[i][0] = J[i][0] * a[i][0] + J[i][1] * a[i][1] - L * (ca * va * va + cb * w * w);
      h[i][1] = J[i][2] * a[i][0] + J[i][3] * a[i][1] - L * (sa * va * va + sb * w * w);
      const double x0 = U * J[i][0] + X * J[i][1], x1 = X * J[i][0] + Y * J[i][1];
      const double y0 = U * J[i][2] + X * J[i][3], y1 = X * J[i][2] + Y * J[i][3];
      W[i][0] = J[i][0] * x0 + J[i][1] * x1;
      W[i][1] = J[i][0] * y0 + J[i][1] * y1;
      W[i][2] = J[i][2] * y0 + J[i][3] * y1;
    }
    /* A W A' = [W0 + W1, W0; W0, W0 + W2], Cholesky without square roots */
    double S[4][4] = {{W[0][0] + W[1][0], 0, 0, 0},
                      {W[0][1] + W[1][1], W[0][2] + W[1][2], 0, 0},
                      {W[0][0], W[0][1], W[0][0] + W[2][0], 0},
                      {W[0][1], W[0][2], W[0][1] + W[2][1], W[0][2] + W[2][2]}};
    double x[4] = {h[1][0] - h[0][0], h[1][1] - h[0][1], h[2][0] - h[0][0], h[2][1] - h[0][1]};
    double D[4];
    for (int i = 0; i < 4; i++) {
      for (int j = 0; j < i; j++) {
        double s = S[i][j];
        for (int l = 0; l < j; l++) s -= S[i][l] * S[j][l] * D[l];
        S[i][j] = s / D[j];
      }
      double s = S[i][i];
      for (int l = 0; l < i; l++) s -= S[i][l] * S[i][l] * D[l];
      D[i] = s;
      for (int j = 0; j < i; j++) x[i] -= S[i][j] * x[j];
    }
    for (int i = 3; i >= 0; i--) {
      x[i] /= D[i];
      for (int j = i + 1; j < 4; j++) x[i] -= S[j][i] * x[j];
    }
    const double force[3][2] = {{x[0] + x[2], x[1] + x[3]}, {-x[0], -x[1]}, {-x[2], -x[3]}};
    for (int i = 0; i < 3; i++) {
      const double f0 = J[i][0] * force[i][0] + J[i][2] * force[i][1];
      const double f1 = J[i][1] * force[i][0] + J[i][3] * force[i][1];
      out[2 * i] = a[i][0] + inverse[i][0] * f0 + inverse[i][1] * f1;
      out[2 * i + 1] = a[i][1] + inverse[i][1] * f0 + inverse[i][2] * f1;
    }
  }
}
"""
FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")


def accelerations(q: np.ndarray, v: np.ndarray) -> Callable[[], np.ndarray]:
    """A call of the loop over all members, which returns their q̈, shape (batch, 6). Needs a C compiler, ``cc``."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(SOURCE)
        subprocess.run(["cc", *FLAGS, str(source), "-o", str(library), "-lm"], check=True)
        function = ctypes.CDLL(str(library)).accelerations
    inertia = uk.systems.ParallelManipulator().inertia
    per_chain = np.stack([np.broadcast_to(x, 3) for x in (inertia.first + inertia.second, inertia.second)], axis=1)
    chains = np.concatenate([per_chain, np.asarray(inertia.coupling).reshape(3, 1)], axis=1)
    parameters = np.append(chains.reshape(-1), float(inertia.L))
    q, v = np.ascontiguousarray(q), np.ascontiguousarray(v)
    out = np.empty_like(q)
    pointer = lambda x: x.ctypes.data_as(ctypes.c_void_p)

    def call():
        function(len(q), pointer(parameters), pointer(q), pointer(v), pointer(out))
        return out

    return call
