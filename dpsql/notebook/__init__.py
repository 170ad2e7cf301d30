"""`%load_ext dpsql`: sessions, questions and budgets in IPython and Jupyter; translates, and decides nothing."""

from dpsql.notebook.extension import load, unload
from dpsql.notebook.magic import Notebook

__all__ = ["Notebook", "load", "unload"]
