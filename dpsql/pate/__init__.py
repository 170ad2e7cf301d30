"""PATE: private labels for public examples, from the votes of teachers who were trained on private data.

    votes = dpsql.pate.Stable(Epsilon("0.3"), Delta("1e-9"), k_bar=8)
    labelling = dpsql.pate.label(session, "votes", examples=range(500), method=votes)

The votes are a private table (teacher, example, label) of the policy whose privacy unit is the teacher.
"""

from dpsql.pate.labelling import Labelling, Receipt, label
from dpsql.pate.methods import Argmax, Majority, Method, Stable, Value

__all__ = ["Argmax", "Labelling", "Majority", "Method", "Receipt", "Stable", "Value", "label"]
