"""A page in headless Chromium: its pictures after actions on it."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = """<script>
const problems = [];
addEventListener("error", (event) => problems.push(event.message));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
console.error = (...words) => problems.push(words.join(" "));
</script>
<script type="module">
const element = (id) => document.getElementById(id);
const rest = (ms) => new Promise((done) => setTimeout(done, ms));
const slide = (id, value) => {
  element(id).value = value;
  element(id).dispatchEvent(new Event("input"));
};
const pictures = [];
const shot = async () => {
  await rest(100);
  pictures.push(element("canvas").toDataURL());
};
let told = {};
await rest(300);
ACTIONS
const loaded = performance.getEntriesByType("resource").map((each) => each.name);
const solid = !element("solids").parentElement.hidden;
const result = document.createElement("pre");
result.id = "result";
result.textContent = JSON.stringify({ pictures, problems, loaded, solid, told });
document.body.append(result);
</script>
"""


def with_actions(page: str, actions: str) -> str:
    """Return the page with a script that acts on it and writes its results."""
    return page.replace("</body>", SCRIPT.replace("ACTIONS", actions) + "</body>")


def in_browser(page: str, actions: str, folder: Path) -> dict:
    """Return the results of the actions, JavaScript that calls ``slide(id, value)`` and ``shot()``."""
    path = folder / "acted.html"
    path.write_text(with_actions(page, actions), encoding="utf-8")
    return visited(path.as_uri())


def visited(address: str) -> dict:
    """Return the results of the script of ``with_actions`` at an address, with no other host reachable."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs chromium")
    options = ["--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--virtual-time-budget=20000"]
    command = [browser, *options, "--window-size=1000,700", "--dump-dom", address]
    page = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    found = re.search(r'<pre id="result">(.*?)</pre>', page, re.S)
    assert found, page[-2000:]
    return json.loads(html.unescape(found[1]))
