"""What one key of a query is called in sentences, and several."""

from __future__ import annotations

from dpsql.display import key_noun, plural
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import ColumnRef, strip_casts


def describe_key(query: PrivateQuery) -> tuple[str, str]:
    """Return what one key of the query is called, and several: by the names of the columns that show them."""
    names = dict.fromkeys(key_noun(output.name) for output in query.outputs if output.key is not None)
    if len(query.keys) == 1 and names:
        name = next(iter(names))
        # the name of an expression may be any word, and so may that of a cast without AS
        is_noun = isinstance(strip_casts(query.keys[0]), ColumnRef) and "::" not in name and "(" not in name
        is_word = not name.isascii() or (len(name) > 1 and not set("aeiouy").isdisjoint(name.lower()))
        if is_noun and not is_word:  # "10 ns" says nothing
            return f'value of "{name}"', f'values of "{name}"'
        return (name, plural(name)) if is_noun else (f"value of {name}", f"values of {name}")
    listed = " and ".join(names)
    return ("combination", "combinations") if not listed else (f"combination of {listed}", f"combinations of {listed}")
