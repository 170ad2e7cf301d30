"""Mutants of a statement that say the same in other letters, and hostile ones that say nothing at all.

A mutation works on words of our own cutting and only where it surely changes no meaning: it never adds space where
there was none, never touches the options but for the case of words, and lets a text alone that is not cut cleanly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from random import Random

__all__ = ["HOMOGLYPHS", "INVISIBLE", "KNOWN_EXCEPTIONS", "MUTATIONS", "cut", "homoglyph", "invisible", "mutants"]

KNOWN = frozenset(
    "reads likes users countries articles user_id article country ts dwell age city continent topic".split()
)
_WORDS = re.compile(
    r"""
      --[^\n]*(?:\n|$) | /\*.*?\*/ | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$
    | "(?:[^"]|"")*" | [$:]?[^\W\d]\w* | \$?\d[\w.]* | [ \t\n\r]+ | :: | [-+*/<>=!%|&^~@\#]+ | .
    """,
    re.VERBOSE | re.DOTALL,
)
_COMPARED = frozenset(["=", "<>", "!=", "<", "<=", ">", ">="])
_SPACES = [
    " ",
    "\n",
    "\t",
    "\r\n",
    "  \t",
    " /* TOP 3 PRIVATE ' */ ",
    " -- it's; \"\n",
    "/**/",
    " /* \u00e9\u2028 */\n",
]
_AFTER_ALIAS = frozenset([",", "from", "where", "group", "join", "on", "left", "top", ")"])
_NO_ALIAS = frozenset(  # words of the grammar, and names of intervals, that DuckDB reads as aliases after AS only
    "select from where group by having order limit offset join on using left right full inner outer cross semi anti "
    "natural positional asof top private with as and or not in is between like ilike case when then else end over "
    "union all except intersect qualify window filter tablesample year years month months day days hour hours minute "
    "minutes second seconds week weeks quarter quarters decade decades distinct escape collate per asc desc nulls "
    "true false null lateral pivot unpivot returning values rows range exists any some array interval cast recursive "
    "default end for to precision varying zone at unnest explain".split()
)
_BREAKS = frozenset("order having qualify window union except intersect limit offset using tablesample".split())
Words = list[str]
KNOWN_EXCEPTIONS = {"resource-amplify-017": {"as"}}  # it has too many words, of which AS, left out, is one
INVISIBLE = (
    "\u00a0\u200b\u200c\u200d\u2060\ufeff\u2028\u2029\u0085\u1680\u3000\u202e\u00ad\u0301\ufe0f\uff11\u0660\x0b\x0c\x1c"
)
HOMOGLYPHS = dict(zip("aceopxyiksw", "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u212a\u017f\u0461", strict=True))
_TELLING = KNOWN | frozenset("select from where group by top private distinct count".split())


def cut(text: str) -> Words:
    """Return the words of a text, white space and comments among them; joined they are the text again."""
    return [found.group() for found in _WORDS.finditer(text)]


def _code(words: Words) -> list[int]:
    """Return where the words stand that are neither white space nor comment."""
    return [at for at, word in enumerate(words) if word.strip(" \t\n\r") and not word.startswith(("--", "/*"))]


def _is_clean(words: Words) -> bool:
    """Say whether nothing odd or half open is in the text, which more characters could close or hide."""
    return all(
        (word[0] in "'\"$" and len(word) > 1) or not re.search(r"['\"`{}\\#]|/\*|\*/", word)
        for word in (words[at] for at in _code(words))
    ) and all(word.isascii() or word.isalpha() for word in (words[at] for at in _code(words)) if len(word) == 1)


def _optional(words: Words) -> set[int]:
    """Return where the words of the clause's options stand."""
    low, code, found = [word.lower() for word in words], _code(words), set()
    for step, at in enumerate(code[:-1]):
        following = [low[each] for each in code[step : step + 2]]
        if following[1] == "(" and following[0] == "with":
            close = next((each for each in code[step:] if words[each] == ")"), len(words))
            found |= set(range(at, close + 1))
    return found


def changed_case(random: Random, words: Words) -> Words:
    def other(word: str) -> str:
        plain = re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII)
        return "".join(random.choice([char.upper(), char.lower()]) for char in word) if plain else word

    return [other(word) for word in words]


def other_spaces(random: Random, words: Words) -> Words:
    changed = [
        random.choice(_SPACES) if not word.strip(" \t\n\r") and random.random() < 0.7 else word for word in words
    ]
    return [
        random.choice(["", " ", "\n\t", "/* - */ ", "-- a\n"]),
        *changed,
        random.choice(["", "\n", " /* ; */", " --"]),
    ]


def as_or_no_as(random: Random, words: Words) -> Words:
    code, casts, low = _code(words), [], [word.lower() for word in words]
    changed = list(words)
    for step in range(1, len(code) - 2):
        before, word, name, after = (low[code[step + shift]] for shift in (-1, 0, 1, 2))
        if word == "(":
            casts.append(before in {"cast", "try_cast"})
        if word == ")" and casts:
            casts.pop()
        ends = (re.fullmatch(r"[a-z_]\w*", before) and before not in _NO_ALIAS - {"end"}) or before == ")"
        named = name.startswith('"') or (re.fullmatch(r"[^\W\d]\w*", name) and name not in _NO_ALIAS)
        type_ = step > 1 and low[code[step - 2]] in {"::", "."} and before != ")"
        if word == "as" and ends and named and after in _AFTER_ALIAS and not any(casts) and not type_:
            changed[code[step]] = random.choice([words[code[step]], ""])
        tables = step > 1 and low[code[step - 2]] in {"from", "join"}
        if tables and ends and before != ")" and _is_alias(words[code[step]]) and name in _AFTER_ALIAS:
            changed[code[step]] = random.choice(["", "AS ", "as "]) + words[code[step]]
    return changed


def _is_alias(word: str) -> bool:
    return bool(re.fullmatch(r"[^\W\d]\w*|\"[^\"]+\"", word)) and word.lower() not in _NO_ALIAS


def more_parentheses(random: Random, words: Words) -> Words:
    code, low, changed, options = _code(words), [word.lower() for word in words], list(words), _optional(words)
    for step in range(1, len(code) - 1):
        before, at, after = (code[step + shift] for shift in (-1, 0, 1))
        value = re.fullmatch(r"'(?:[^']|'')*'|[0-9]+|[a-z_]\w*", low[at], re.ASCII) and low[at] not in _NO_ALIAS
        if at not in options and value and low[before] in _COMPARED and low[after] in {"group", "and", "or", ")"}:
            changed[at] = random.choice([words[at], f"({words[at]})", f"( ( {words[at]}) )"])
    for step, at in enumerate(code):
        end = _end_of_condition(low, code[step + 1 :]) if low[at] == "where" else None
        if end is not None and random.random() < 0.5:
            changed[at], changed[end] = changed[at] + " (", ") " + changed[end]
    return changed


def _end_of_condition(low: Words, code: list[int]) -> int | None:
    depth = 0
    for at in code:
        depth += (low[at] == "(") - (low[at] == ")")
        if depth < 0 or (not depth and low[at] == "group"):
            return at
        if not depth and low[at] in _BREAKS | {"select", "from", "top", ";", "for"}:
            return None
    return None


def quoted_names(random: Random, words: Words) -> Words:
    code, changed, options = _code(words), list(words), _optional(words)
    for at, after in zip(code, [*code[1:], len(words) - 1], strict=True):
        if words[at].lower() in KNOWN and at not in options and words[after] != "(":
            changed[at] = f'"{words[at]}"' if random.random() < 0.6 else words[at]
    return changed


def other_strings(random: Random, words: Words) -> Words:
    code, changed, options = _code(words), list(words), _optional(words)
    before_value = _COMPARED | set("( , || like ilike then else when and or between".split())
    for before, at in pairwise(code):
        word = words[at]
        if word[0] == "'" and len(word) > 1 and at not in options and words[before].lower() in before_value:
            escaped = "E" + word.replace("\\", "\\\\")
            dollars = f"$q${word[1:-1].replace(chr(39) * 2, chr(39))}$q$" if "$" not in word else word
            changed[at] = random.choice([word, escaped, dollars])
    return changed


def foreign_names(random: Random, words: Words) -> Words:
    """Give an alias a name that only quotes can hold, wherever it stands."""
    code, low, options = _code(words), [word.lower() for word in words], _optional(words)
    named = set()
    for step in range(len(code) - 2):
        word, name, after = (low[code[step + shift]] for shift in (0, 1, 2))
        if word == "as" and after in _AFTER_ALIAS - {")"} and _is_alias(name) and not name.startswith('"'):
            named.add(name)
    called = {low[at] for at, after in pairwise(code) if words[after] == "("}
    inside = {low[at] for at in options}
    safe = sorted(named - KNOWN - called - inside)
    if not safe:
        return words
    chosen = random.choice(safe)
    other = (
        '"'
        + random.choice(["\u043a\u043b\u044e\u0447", "a\u2028b", "\u200b", "\U0001f642 ''", "TOP 3 PRIVATE --"])
        + '"'
    )
    return [other if word.lower() == chosen else word for word in words]


def other_clause(_: Random, words: Words) -> Words:
    """Write the clause that ends a statement after SELECT."""
    found = re.fullmatch(
        r"\s*(?P<select>SELECT)\b(?P<body>.*)\bTOP\s+(?P<k>\d{1,4})\s+PRIVATE(?:\s+WITH\s*\((?P<options>[^()]*)\))?\s*(?P<end>;?)\s*",
        "".join(words),
        re.IGNORECASE | re.DOTALL,
    )
    low = [words[at].lower() for at in _code(words)]
    if (
        found is None
        or low[1] == "distinct"
        or low.count("top") > 1
        or "--" in found["body"] + (found["options"] or "")
    ):
        return words
    if set(low) & (_BREAKS | {"'"}) or ("group" not in low):
        return words
    last = f" WITH ({found['options']})" if found["options"] is not None else ""
    return cut(f"SELECT TOP {found['k']} PRIVATE {found['body'].strip()}{last}{found['end']}")


MUTATIONS: dict[str, Callable[[Random, Words], Words]] = {
    "clause": other_clause,
    "as": as_or_no_as,
    "parentheses": more_parentheses,
    "strings": other_strings,
    "foreign": foreign_names,
    "quotes": quoted_names,
    "case": changed_case,
    "spaces": other_spaces,
}


def mutants(random: Random, text: str, number: int, *, leave: Collection[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """Yield texts that mean the same as `text`, and the names of the mutations in each, one at least."""
    words = cut(text)
    usable = [name for name in MUTATIONS if name not in leave] if _is_clean(words) else ["case"]
    usable = usable if _code(words) else ["spaces"]
    for _ in range(number):
        chosen = [name for name in usable if random.random() < 0.4] or [random.choice(usable)]
        changed = list(words)
        for name in chosen:
            changed = cut("".join(MUTATIONS[name](random, changed)))
        yield "".join(changed), chosen


def invisible(random: Random, text: str) -> str:
    """Put a character into the code of the text that no one sees, or that looks like a space or digit."""
    words = cut(text)
    at = random.choice(_code(words))
    word, char = words[at], random.choice(INVISIBLE)
    inside = random.randrange(len(word) + 1) if re.fullmatch(r"\w+", word) else random.choice([0, len(word)])
    words[at] = word[:inside] + char + word[inside:]
    return "".join(words)


def homoglyph(random: Random, text: str) -> str | None:
    """Put a letter of another alphabet into a name or a keyword; None where there is none to choose."""
    words = cut(text)
    code = _code(words)
    low = [words[at].lower() for at in code]
    telling = [
        at
        for step, at in enumerate(code[:-1])
        if low[step] in _TELLING
        and "as" not in {low[step - 1], low[step + 1]}  # a name that is given here
        and set(low[step]) & set(HOMOGLYPHS)
    ]
    if not telling:
        return None
    at = random.choice(telling)
    letter = random.choice(sorted(set(words[at].lower()) & set(HOMOGLYPHS)))
    words[at] = re.sub(letter, HOMOGLYPHS[letter], words[at], count=1, flags=re.IGNORECASE)
    return "".join(words)
