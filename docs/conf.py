"""Configuration of the documentation: ``sphinx-build -W --keep-going -b html docs docs/_build``.

Nothing in the built pages comes from another host: mathematics is MathML, and fonts and scripts are those of the theme.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_extensions"))

import ukjax  # noqa: E402

project = "ukjax"
author = "The ukjax authors"
copyright = "The ukjax authors, Apache-2.0"
release = version = ukjax.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_nb",
    "mathml",
    "docstrings",
    "gallery",
    "links",
]
exclude_patterns = ["_build", "jupyter_execute", "_extensions", "_templates", "_extra"]
templates_path = ["_templates"]
html_static_path = ["_static"]
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False
nb_execution_mode = "off"  # the notebooks are kept with their outputs, and the tests run them
nb_ipywidgets_js = {}
# A word of a docstring's type may be the name of several attributes.
suppress_warnings = ["mystnb.unknown_mime_type", "ref.python"]
html_math_renderer = "mathml"

highlight_language = "none"  # literal blocks of docstrings are drawings and equations
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings have the shapes and units
autodoc_default_options = {"members": True, "member-order": "bysource"}
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "ukjax"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_extra_path = ["_extra"] if (HERE / "_extra").is_dir() else []  # the moving pages of pictures.py
html_css_files = ["ukjax.css"]
html_show_sourcelink = False
# These have no pages below them, or list these themselves beside a wide table.
html_sidebars = dict.fromkeys(("start", "benchmarks", "verification", "not_for", "coming_from/index"), [])
html_theme_options = {
    "logo": {"text": "ukjax"},
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}

# Sphinx reads only files below its own folder.
NOTEBOOKS = HERE / "notebooks"
NOTEBOOKS.mkdir(exist_ok=True)
for notebook in (ROOT / "notebooks").iterdir():
    copy = NOTEBOOKS / notebook.name
    if not copy.is_file() or copy.read_bytes() != notebook.read_bytes():  # what has not changed is not built again
        shutil.copyfile(notebook, copy)
