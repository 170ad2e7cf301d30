"""From the analyst's text to checked tokens.

sqlglot and DuckDB disagree about real inputs (spaces, prefixes, operators, keywords), so nothing that either of them
would read in its own way gets through here. Our scanner finds strings, quoted names, comments and parameters, and
outside them admits printable ASCII and Unicode letters only. Then sqlglot's stock DuckDB tokenizer cuts the rest.
`_check_agreement` refuses what the two cut differently, and each string and parameter becomes a numbered stand-in that
sqlglot never decodes. Which words are keywords, functions or names is settled in `syntax/grammar.py`. `read_words` cuts
a text of which nothing is known, and refuses none. `bind` gives values to parameters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter, not_
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal, Unsupported, UsageError

if TYPE_CHECKING:
    from sqlglot import Token

MAX_TEXT_LENGTH = 128 * 1024
MAX_TOKENS = 6_400  # enough for the lists of 3,000 values that tools write
STAND_IN = "\0"
FUNCTION_PREFIX = "dpsql_function_"  # put before functions of the allow-list by syntax/grammar.py

_SPANS = re.compile(
    r"""
      (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<escaped> [eE]'(?:[^'\\]|\\.|'')*' )
    | (?P<string>  '(?:[^']|'')*' )
    | (?P<dollar>  \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$ )
    | (?P<quoted>  "(?:[^"]|"")+" )
    | (?P<parameter> \? | \$[0-9]+ | [$:][A-Za-z_][A-Za-z_0-9]* )
    """,
    re.VERBOSE | re.DOTALL,
)
_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(explain)(?=\s)", re.IGNORECASE | re.DOTALL)
_OPERATOR = re.compile(r"[-+*/<>=!%|&@~]+")
_OPERATORS = frozenset(
    ["=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "||", "=>", "&", "|", "~", "@"]
)
_OF_POSTGRES = frozenset(["~~", "!~~", "~~*", "!~~*", "~*", "!~", "!~*"])
_OTHER_OPERATORS = {
    "==": "Write = in its place.",
    "!": "Write NOT in its place.",
    "&&": "Write AND in its place.",
    **dict.fromkeys(["->", "->>"], "Leave it out: fields of JSON are not read in a private query."),
    "**": "Write pow(x, 2).",
    "~~": "Write LIKE in its place.",
    "!~~": "Write NOT LIKE in its place.",
    "!~": "Write NOT regexp_matches(x, 'pattern').",
    "~*": "Write regexp_matches(x, 'pattern', 'i').",
    "!~*": "Write NOT regexp_matches(x, 'pattern', 'i').",
}
_BEFORE_MINUS = frozenset(["=", "<>", "<", "<=", ">", ">=", "+", "*", "/", "//"])
_PUNCTUATION = frozenset("()[],.;_ \t\n")
_ENDS_OPERAND = frozenset("'\")]}")
_BEFORE_PARAMETER = frozenset(  # words
    "all and any between by case distinct else escape from ilike in interval is like limit not offset on or select "
    "then top when where".split()
)
_PLAIN = re.compile(r"(?:[A-DF-Za-df-z0-9_()\[\],.; \t\n]|[eE](?!'))+")  # what begins no span; E'...' is one
_AFTER_COLON = frozenset(" \t\r\n\"'(/-")  # a letter makes it a parameter
_WORDS = re.compile(
    r"""
      (?P<blank> \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<STRING> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' )
    | (?P<HEREDOC_STRING> \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$ )
    | (?P<IDENTIFIER> "(?:[^"]|"")*" )
    | (?P<open> [eE]?'.* | ".* | \$[A-Za-z_]*\$.* )
    | (?P<PARAMETER> \$[0-9]+ )
    | (?P<NUMBER> [0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)? )
    | (?P<VAR> [^\W\d][\w$]* )
    | (?P<sign> :: | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_SIGNS = {
    "(": "L_PAREN",
    ")": "R_PAREN",
    "[": "L_BRACKET",
    "]": "R_BRACKET",
    ",": "COMMA",
    ".": "DOT",
    ";": "SEMICOLON",
    "::": "DCOLON",
}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'"}
ParameterValues = Sequence[object] | Mapping[str, object]
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def ascii_lower(name: str) -> str:
    """Fold A-Z only, as DuckDB compares names; Python's `lower` would fold the Kelvin sign to k."""
    return name.lower() if name.isascii() else name.translate(_ASCII_LOWER)


@dataclass(frozen=True, slots=True)
class Value:
    """A string literal or a parameter: `content` is the decoded text, or the parameter as written (?, $1, :name)."""

    kind: str
    content: str
    place: Place


Parameter = Callable[[Value], object]  # returns what is bound to a parameter


@dataclass(frozen=True, slots=True)
class ScannedStatement:
    """The analyst's text, the tokens of sqlglot with values replaced by stand-ins, and those values.

    With `postgres`, the text means what it means in PostgreSQL; every reader of it looks here.
    """

    text: str
    tokens: tuple[Token, ...]
    values: tuple[Value, ...]
    postgres: bool = False

    def place(self, first: Token, last: Token | None = None) -> Place:
        """Return the place of the fragment from `first` to `last`."""
        return make_place(self.text, first.start, end=(last or first).end + 1)

    def value(self, stand_in: str) -> Value | None:
        """Return the value of a token or literal, if it has one."""
        return self.values[int(stand_in[1:])] if stand_in.startswith(STAND_IN) else None


def bind(statement: ScannedStatement, parameters: ParameterValues) -> dict[Value, object]:
    """Bind a value to every parameter of the statement; refuse too many, too few and mixed styles."""
    if isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters):
        values = {name.lstrip(":$"): value for name, value in parameters.items()}
    elif isinstance(parameters, str) or not isinstance(parameters, Sequence):
        values = None
    else:
        values = dict(zip(map(str, range(1, len(parameters) + 1)), parameters, strict=True))
    bound: dict[Value, object] = {}
    wanted, names, styles = list[Value](), set[str](), set[str]()
    for value in statement.values:
        if value.kind != "parameter":
            continue
        wanted.append(value)
        styles.add("numbered" if value.content[1:].isdigit() else value.content[:1].replace("$", ":"))
        # The n-th ? and $n are both known as "n", and :city as "city".
        name = str(len(wanted)) if value.content == "?" else value.content[1:]
        names.add(name)
        if values is not None and name in values:
            bound[value] = values[name]
    if len(styles) > 1:
        reason, hint = "A statement must write its parameters in one style.", "Write ?, $1 or :name throughout."
        raise UsageError("parameters", reason, hint=hint, place=wanted[0].place)
    if values is None:
        hint = 'For example ["DE"], or {"country": "DE"} for :country.'
        raise UsageError("parameters", "Parameters must be a list, or a mapping for :name.", hint=hint)
    if len(bound) < len(wanted):
        hint = "Pass one value for each parameter, in order or by name."
        where = next(value.place for value in wanted if value not in bound)
        others = sorted(values.keys() - names) if isinstance(parameters, Mapping) else []
        hint += f" The statement has no parameter {others[0]!r:.40}." if others else ""
        raise UsageError("parameters", "This parameter has no value.", hint=hint, place=where)
    if values.keys() - names:
        reason = f"More parameters were passed ({len(values)}) than the statement uses ({len(names)})."
        raise UsageError("parameters", reason, hint="Pass one value for each ?, $1 or :name.")
    return bound


def make_place(text: str, start: int, *, end: int) -> Place:
    """Return the 1-based place of text[start:end]."""
    return Place(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start), text[start:end])


def scan(  # noqa: C901 - each way in which a text is none
    text: str, *, lenient: bool = False, postgres: bool = False
) -> ScannedStatement:
    """Check the characters of `text` and cut it into tokens; raise `Refusal` at the first thing out of place.

    If it is `lenient`, characters and operators that dpsql does not know pass: what has them is DuckDB's to read, over
    rows that are public. `check_tokens` keeps them out of a private query. With `postgres`, the operators of PostgreSQL
    for patterns are known too.
    """
    if not isinstance(text, str):
        raise UsageError("not-text", "A statement must be text.", hint='session.sql("SELECT ... TOP 10 PRIVATE")')
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        reason = "The statement holds half of a surrogate pair."
        raise Refusal("character", reason, hint="Send valid Unicode.") from None
    if size > MAX_TEXT_LENGTH:
        raise Refusal("too-long", f"A statement may have at most {MAX_TEXT_LENGTH} bytes.", hint="Shorten it.")
    if "\0" in text:
        reason, where = "A NUL character may not appear anywhere.", text.index("\0")
        raise Refusal("character", reason, hint="Remove it.", place=make_place(text, where, end=where))
    spans = _find_spans(text, lenient=lenient, postgres=postgres)
    from sqlglot import Token, TokenType, tokenize
    from sqlglot.errors import SqlglotError

    explain = _EXPLAIN.match(text)
    # sqlglot has operators that begin with ?, and reads $1,$ as the quote of a string
    plain = _blank(text, spans, marks=True) if spans else text
    try:
        if explain is None:
            tokens = tokenize(plain, read="duckdb")
        else:  # sqlglot would take all that follows the word for one string
            start, end = explain.span(1)
            tokens = tokenize(plain[:start] + "_" * (end - start) + plain[end:], read="duckdb")
            tokens[0] = Token(TokenType.VAR, explain[1], tokens[0].line, tokens[0].col, start, end - 1)
    except (SqlglotError, RecursionError, ValueError):
        tokens = None
    if tokens is None:
        raise Refusal("syntax", "The statement cannot be cut into words.", hint="Check quotes and comments.")
    if len(tokens) > MAX_TOKENS:
        parentheses = {TokenType.L_PAREN, TokenType.R_PAREN}  # tools write them where they mean nothing
        words = sum(token.token_type not in parentheses for token in tokens)
        if words > MAX_TOKENS or len(tokens) > 2 * MAX_TOKENS:
            raise Refusal("too-long", f"A statement may have at most {MAX_TOKENS} words.", hint="Shorten it.")
    if tokens and tokens[0].token_type == TokenType.COMMAND:  # such as CALL: sqlglot takes the rest for one string
        return ScannedStatement(text, (tokens[0],), (), postgres)
    similar = next((token for token in tokens if token.token_type == TokenType.SIMILAR_TO), None) if postgres else None
    if similar is not None:  # which DuckDB takes for a regular expression
        reason, hint = "SIMILAR TO is not read.", "Write LIKE, or ~ with a regular expression: name ~ '^(ab|cd)$'."
        where_similar = make_place(text, similar.start, end=similar.end + 1)
        raise Unsupported("pattern", reason, hint=hint, place=where_similar)
    _check_agreement(_blank(text, spans, marks=False) if spans else text, tokens, spans=spans)
    return _put_stand_ins(text, tokens, spans=spans, postgres=postgres)


def _blank(text: str, spans: list[tuple[int, int, str]], *, marks: bool) -> str:
    """Return the text with spaces for its comments, as sqlglot reads GROUP /* */ BY as two words, and 0 for `marks`."""
    parts, copied = list[str](), 0
    for start, end, kind in spans:
        if kind == "comment":
            parts += [text[copied:start], re.sub(r"[^\n]", " ", text[start:end])]
            copied = end
        elif marks and kind == "parameter":  # ? or $1; behind a dot 0 would make it one number with that
            is_number = text[start] == "$" and text[start + 1 : start + 2].isdigit() and text[start - 1 : start] != "."
            if is_number or text[start] == "?":
                parts += [text[copied:start], "0"]
                copied = start + 1
    return "".join([*parts, text[copied:]])


def check_tokens(statement: ScannedStatement, tokens: Sequence[Token]) -> None:
    """Raise `Refusal` unless these tokens of a lenient statement are what `scan` makes of their part of the text.

    `statement` is as `scan` returned it. Tokens that have another type since then are compared as they were.
    """
    text = list(re.sub(r"[^\n]", " ", statement.text))
    for token in tokens:
        text[token.start : token.end + 1] = statement.text[token.start : token.end + 1]
    starts = {token.start for token in tokens}  # those that a pass has added are at the places of others
    read = [(token.token_type, token.start, token.end) for token in statement.tokens if token.start in starts]
    strict = [
        (token.token_type, token.start, token.end) for token in scan("".join(text), postgres=statement.postgres).tokens
    ]
    if strict != sorted(read, key=itemgetter(1)):
        raise _refuse_doubt(statement.text, tokens[0].start, end=tokens[-1].end + 1)


def _refuse_doubt(text: str, start: int, *, end: int) -> Refusal:
    reason, hint = "This fragment can be read in two ways.", "Put spaces between its parts, or parentheses around them."
    return Refusal("syntax", reason, hint=hint, place=make_place(text, start, end=end))


def _find_spans(text: str, *, lenient: bool, postgres: bool) -> list[tuple[int, int, str]]:
    """Return (start, end, kind) of comments, strings, quoted names and parameters, having checked all else."""
    spans: list[tuple[int, int, str]] = []
    at = 0
    while at < len(text):
        if plain := _PLAIN.match(text, at):
            at = plain.end()
            continue
        span = _SPANS.match(text, at)
        if span is None or not span.lastgroup:
            at = _skip_code(text, at, lenient=lenient, postgres=postgres)
            continue
        # `lastgroup` is the group that closed last: of $t$a$t$ the dollar around the tag, not the tag.
        kind, body = span.lastgroup, span.group()
        if kind == "parameter" and _is_sign(text, at):
            at += 1
            continue
        reason, hint, first, last = "", "", at, at + 2
        before = text[at - 1] if at else " "
        if kind != "comment" and (before.isalnum() or before in "_$"):
            reason = "A string, a quoted name or a parameter may not follow a letter or digit directly."
            hint = "Leave out what is before the quote, or put a space there; only E may stand before a string."
            first, last = at - 1, span.end()
        elif kind == "comment" and body.startswith("--") and "\r" in body.rstrip("\r"):
            reason, hint = "A comment holds half of a line break.", "End lines with a line feed."
        elif kind == "comment" and body.startswith("/*") and "/*" in body[2:]:
            reason, hint = "Comments may not be nested.", "Close the first before the second."
        if reason:
            raise Refusal("character", reason, hint=hint, place=make_place(text, first, end=last))
        spans.append((at, span.end(), kind))
        at = span.end()
    return spans


def _is_sign(text: str, at: int) -> bool:
    """Say whether a : is that of {'a':n}, k[1:n], {a :n} or `name:item`: a parameter follows no operand."""
    last = at - 1
    while last >= 0 and text[last].isspace():
        last -= 1
    if text[at] != ":" or last < 0 or text[last] in _ENDS_OPERAND:
        return text[at] == ":" and last >= 0
    first = last
    while first >= 0 and (text[first].isalnum() or text[first] == "_"):
        first -= 1
    word = ascii_lower(text[first + 1 : last + 1])
    while first >= 0 and text[first].isspace():
        first -= 1
    is_key = first >= 0 and text[first] == "{"
    return bool(word) and (is_key or (last == at - 1 and word not in _BEFORE_PARAMETER))


def _skip_code(text: str, at: int, *, lenient: bool, postgres: bool) -> int:
    """Check one character, or one run of operator characters, of plain code; return where to go on.

    If it is `lenient`, all may be DuckDB's, but no quote or comment that is not closed.
    """
    char = text[at]
    if run := _OPERATOR.match(text, at):
        cuts = [cut for cut in (text.find("--", at, run.end()), text.find("/*", at, run.end() + 1)) if cut > at]
        end = min([run.end(), *cuts])
        operator = text[at:end]
        is_known = operator in _OPERATORS or (operator[-1] == "-" and operator[:-1] in _BEFORE_MINUS)
        is_free = lenient and not operator.startswith("/*")
        if is_known or is_free or (postgres and operator in _OF_POSTGRES):
            return end
        hint = _OTHER_OPERATORS.get(
            operator, f"Put spaces between operators, which are {' '.join(sorted(_OPERATORS))}."
        )
        where = make_place(text, at, end=end)
        raise Unsupported("operator", "This operator is not one of dpsql's.", hint=hint, place=where)
    if text.startswith("::", at) or text.startswith("\r\n", at):
        return at + 2
    is_letter = char in _PUNCTUATION or (char.isalnum() if char.isascii() else unicodedata.category(char)[0] == "L")
    if is_letter or (char == ":" and text[at + 1 : at + 2] in _AFTER_COLON) or (lenient and char not in "'\""):
        return at + 1
    reason = "This character may stand only inside a string."
    hint = "Write a space in its place: outside of strings dpsql reads ASCII and letters."
    if char in "'\"":
        reason, hint = "A quote or comment is not closed.", "Close it."
    raise Refusal("character", reason, hint=hint, place=make_place(text, at, end=at + 1))


def _check_agreement(text: str, tokens: list[Token], *, spans: list[tuple[int, int, str]]) -> None:
    """Refuse unless sqlglot's tokens cover exactly what our scanner takes for code, strings, names and parameters.

    `text` has spaces for comments, which a token of two words may go across.
    """
    solid = bytes(map(not_, map(str.isspace, text)))
    meant, read = bytearray(solid), bytearray(len(text))
    starts, within = set[int](), set[int]()
    for token in tokens:
        starts.add(token.start)
        read[token.start : token.end + 1] = b"\1" * (token.end + 1 - token.start)
    for start, end, kind in spans:
        meant[start:end] = bytes([kind != "comment"]) * (end - start)
        if kind != "comment" and start not in starts:
            within.add(start)  # such as the ? of 1.?
    # A byte for each character, 1 where it is code: as two large numbers they are compared at once. Blanks may be in a
    # token of two words, GROUP BY, and are left out.
    differ = int.from_bytes(meant) ^ int.from_bytes(read)
    if not within and not differ & int.from_bytes(solid):
        return
    for at, (ours, theirs) in enumerate(zip(meant, read, strict=True)):
        if (ours != theirs and not text[at].isspace()) or at in within:
            raise _refuse_doubt(text, at, end=at + 1)


def _put_stand_ins(
    text: str, tokens: list[Token], *, spans: list[tuple[int, int, str]], postgres: bool
) -> ScannedStatement:
    """Return the statement, in which the token of every string and parameter is a stand-in; drop nothing else."""
    from sqlglot import Token, TokenType

    ends = {}
    for start, end, kind in spans:
        ends[start] = end, kind
    values: list[Value] = []
    plain: list[Token] = []
    covered = 0
    for token in tokens:
        start = token.start
        if start < covered:
            continue  # the rest of a span that sqlglot cut in two, such as $1
        end, kind = ends.get(start, (token.end + 1, ""))
        covered = end
        reason, hint, last = "", "", token.end + 1
        if kind == "parameter" and token.end >= end:
            reason, hint = "A parameter runs into what follows it.", "Put a space between them."
        elif kind and kind != "quoted":
            place = make_place(text, start, end=end)
            content = _decode(text, start, end=end, kind=kind)
            values.append(Value("parameter" if kind == "parameter" else "string", content, place))
            # The token of 'Rome' becomes a STRING of NUL and the number of its value, by which `ScannedStatement.value`
            # finds it.
            stand_in = f"{STAND_IN}{len(values) - 1}"
            plain.append(Token(TokenType.STRING, stand_in, token.line, token.col, start, end - 1))
            continue
        elif token.end + 1 != end or (kind == "quoted") != (token.token_type == TokenType.IDENTIFIER):
            raise _refuse_doubt(text, start, end=end)
        elif not kind and not token.text.isascii() and token.token_type != TokenType.VAR:
            # sqlglot folds the long s and the sharp s too, DuckDB A-Z alone
            reason = "This word can be read as a keyword and as a name."
            hint = "Quote it with double quotes if it is a name."
        elif token.token_type == TokenType.NUMBER and (text[end : end + 1].isalpha() or text[end : end + 1] == "_"):
            reason, last = "A number runs into a word.", end + 1
            hint = "Write the number in decimal digits, and put a space between it and a word."
        if reason:
            raise Refusal("syntax", reason, hint=hint, place=make_place(text, start, end=last))
        plain.append(token)
    return ScannedStatement(text, tuple(plain), tuple(values), postgres)


def _decode(text: str, start: int, *, end: int, kind: str) -> str:
    """Return what a string means, and a parameter as it is written."""
    raw = text[start:end]
    if kind == "parameter":
        return raw
    if kind == "dollar":
        width = raw.index("$", 1) + 1
        return raw[width:-width]
    if kind == "string":
        return raw[1:-1].replace("''", "'")
    body, parts, copied = raw[2:-1], list[str](), 0
    for escape in re.finditer(r"''|\\(.)", body, flags=re.DOTALL):
        if escape[1] is not None and escape[1] not in _ESCAPES:
            hint = "Write the character itself; \\b \\f \\n \\r \\t \\\\ and \\' are read."
            at = start + 2 + escape.start()
            raise Unsupported("escape", "This escape is not read.", hint=hint, place=make_place(text, at, end=at + 2))
        parts += [body[copied : escape.start()], "'" if escape[1] is None else _ESCAPES[escape[1]]]
        copied = escape.end()
    return "".join([*parts, body[copied:]])


def read_words(text: str, *, postgres: bool = False) -> Iterator[Token]:
    """Yield the tokens of any text, without comments; of signs, only brackets, commas and the like have types.

    Strings are as they are written. Comments are not nested, and what has no end goes to that of the text. With
    `postgres`, they may be, and a ValueError is raised for what has no end.
    """
    from sqlglot import Token, TokenType

    kinds = {sign: TokenType[name] for sign, name in _SIGNS.items()}
    at = 0
    while at < len(text):
        word = _WORDS.match(text, at)
        assert word is not None  # noqa: S101 - any character is a sign
        start, at, kind, written = at, word.end(), word.lastgroup or "sign", word.group()
        if kind == "comment":
            opened = 1
            while opened:
                mark = re.compile(r"/\*|\*/" if postgres else r"\*/").search(text, at)
                if mark is None and postgres:
                    raise ValueError
                opened, at = (0, len(text)) if mark is None else (opened + (1 if mark[0] == "/*" else -1), mark.end())
            continue
        if kind == "blank":
            continue
        if kind == "open":
            if postgres:
                raise ValueError
            kind = {'"': "IDENTIFIER", "$": "HEREDOC_STRING"}.get(written[0], "STRING")
        if kind == "IDENTIFIER":
            written = written[1:-1].replace('""', '"')
        type_ = kinds.get(written, TokenType.UNKNOWN) if kind == "sign" else TokenType[kind]
        yield Token(type_, written, 1, start + 1, start, at - 1)
