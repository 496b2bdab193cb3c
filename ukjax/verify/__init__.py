"""Problems of constrained dynamics with known answers: ``uk.verify.problem("andrews")``, ``uk.verify.run()``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
