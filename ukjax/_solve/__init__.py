"""How M, Q, A, b become accelerations: one file per method, one rule for their derivatives."""

from .base import AbstractMethod as AbstractMethod
from .base import AbstractResponse as AbstractResponse
from .base import Response as Response
from .cholesky import Cholesky as Cholesky
from .choose import METHODS as METHODS
from .choose import choose as choose
from .implicit import reach as reach
from .implicit import solve as solve
from .kernels import cholesky as cholesky
from .kernels import inverse_cholesky as inverse_cholesky
from .kernels import orthonormal_rows as orthonormal_rows
from .kkt import KKT as KKT
from .orthogonal import Orthogonal as Orthogonal
from .orthogonal import Orthonormalised as Orthonormalised
from .orthogonal import orthonormalise as orthonormalise
from .scales import coordinate_scale as coordinate_scale
from .scales import doubtful as doubtful
from .scales import rounding as rounding
from .scales import row_length as row_length
from .scales import row_scale as row_scale
from .svd import SVD as SVD
from .udwadia_phohomsiri import UdwadiaPhohomsiri as UdwadiaPhohomsiri
from .usual import Flexible as Flexible
from .usual import Usual as Usual
from .usual import independent_rows as independent_rows
from .usual import light as light
