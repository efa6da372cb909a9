"""The site: `sphinx-build -W --keep-going -b html docs OUT` after `pip install '.[docs]'`.

Notebooks are executed while the site is built, which takes minutes; `-D nb_execution_mode=off` leaves that
out, and their outputs too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import npusim

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402  # it lies beside this file

project = "npusim"
author = "the authors of npusim"
project_copyright = author
release = version = npusim.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["schemas"]
html_theme = "furo"
html_title = f"npusim {release}"
html_copy_source = False

myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

default_role = "code"  # docstrings are Markdown: `name` is code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"Array": "numpy.ndarray"}
python_maximum_signature_line_length = 80

generate.write(HERE / "generated")
