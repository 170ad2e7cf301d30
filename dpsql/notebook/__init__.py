"""`%load_ext dpsql`: sessions, questions and budgets in IPython and Jupyter; translates, and decides nothing."""

from dpsql.notebook.magic import Notebook, load, unload

__all__ = ["Notebook", "load", "unload"]
