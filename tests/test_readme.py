"""The README's example does what its comments say."""

import re
from pathlib import Path

import numpy as np

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs_and_its_numbers_are_right(capsys):
    found = re.search(r"<!-- example -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    np.testing.assert_allclose(names["motion"].q[-1], [-0.275087462576117, -0.961419205099125], atol=1e-8)
    assert "[-0.27508746 -0.96141921]" in capsys.readouterr().out


def test_both_commands_are_there():
    for name in ("main", "test"):
        assert re.search(rf"<!-- {name} -->\n```bash\npython3 -m venv .*\n```", README)
