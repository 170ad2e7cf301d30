"""The bracket tree of a statement: the one place that pairs brackets and finds commas and clauses.

    SELECT a, COUNT(*) AS n FROM (SELECT ... UNION SELECT ...) WHERE a IN (1, 2)        tokens
    SELECT a, COUNT[*] AS n FROM [SELECT ... UNION SELECT ...] WHERE a IN [1, 2]        nodes: tokens and blocks

A `Block` is a pair of brackets with the nodes between them; the statement is one without brackets. What is nested is
one node of the block around it, so that commas and keywords of a block are found by looking at its nodes alone:
`split` cuts nodes at commas, and a `Select` has its clauses by their first word. The parts of an expression are tuples
of nodes, which compare by the identity of their tokens; their place in the text is that from `first_token` to
`last_token`. `rewrite` makes a tree of other nodes, and `flatten` makes tokens of nodes.

All is linear in the number of tokens. Brackets may be nested thousands deep: no function here calls itself. A closing
bracket closes the innermost one that is open, whatever its form; one that closes nothing is a token of its own, and one
that is never closed reaches to the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from dpsql.errors import Place
from dpsql.sql.lexer import ScannedStatement, ascii_lower

if TYPE_CHECKING:
    from sqlglot import Token

Node: TypeAlias = "Token | Block"
Nodes = tuple[Node, ...]
Form = Callable[[Nodes, int], tuple[Sequence[Node], int]]  # what to write for nodes from one on, and for how many: 0

GROUPING_SETS = frozenset(["ROLLUP", "CUBE", "GROUPING_SETS"])  # the first words of grouping sets
SET_OPERATIONS = frozenset(["UNION", "INTERSECT", "EXCEPT"])
EVERY_AGGREGATE = frozenset(  # of DuckDB, with the macros that are made of them
    "any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last "
    "arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg bool_and "
    "bool_or combine_aggr corr count count_if count_star countif covar_pop covar_samp decimal_average entropy favg "
    "first fsum geomean geometric_mean group_concat grouping grouping_id histogram histogram_exact kahan_sum kurtosis "
    "kurtosis_pop last list listagg lttb mad max max_by mean median min min_by mode percentile_cont percentile_disc "
    "product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope "
    "regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum "
    "sum_no_overflow sumkahan var_pop var_samp variance variant_group_array variant_group_object wavg "
    "weighted_avg".split()
)
QUANTILES = frozenset(  # that a private query releases; the last is GoogleSQL's
    "median percentile_cont percentile_disc quantile quantile_cont quantile_disc approx_quantile "
    "approx_quantiles".split()
)
WRITTEN_AGGREGATES = EVERY_AGGREGATE | QUANTILES | {"var"}  # SQL Server's name of VARIANCE
AGGREGATES = WRITTEN_AGGREGATES | {"columns"}  # COLUMNS(*) stands for several
_OPENINGS = frozenset(["L_PAREN", "L_BRACKET", "L_BRACE"])
_CLOSINGS = frozenset(["R_PAREN", "R_BRACKET", "R_BRACE"])
_NAMES = frozenset(["VAR", "IDENTIFIER"])
_CLAUSES = frozenset("FROM WHERE GROUP_BY HAVING WINDOW QUALIFY ORDER_BY LIMIT OFFSET".split())
_ENDS_SELECT = SET_OPERATIONS | {"SELECT", ""}
_BEFORE_PART = SET_OPERATIONS | {"ALL", "DISTINCT"}
_OF_THE_WHOLE = frozenset(["ORDER_BY", "LIMIT", "OFFSET"])  # behind the last part of a set operation


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """Brackets and the nodes between them; without `opening` the whole statement, without `closing` never closed."""

    opening: Token | None
    nodes: Nodes
    closing: Token | None

    @property
    def kind(self) -> str:
        """The type of the opening bracket, "" for the statement."""
        return "" if self.opening is None else self.opening.token_type.name

    @property
    def is_query(self) -> bool:
        """Whether a query is in parentheses, directly; DuckDB lets one begin with FROM."""
        return self.kind == "L_PAREN" and kind_of(self.nodes, 0) in {"SELECT", "WITH", "FROM"}

    @cached_property
    def ctes(self) -> tuple[Nodes, ...]:
        """The CTEs of a query: each name, columns in parentheses if it has them, AS and its query in parentheses."""
        if kind_of(self.nodes, 0) != "WITH":
            return ()
        start = 1 + self.is_recursive
        ends = (at for at, node in enumerate(self.nodes) if at >= start and kind_of((node,), 0) == "SELECT")
        parts = split(self.nodes[start : next(ends, len(self.nodes))])
        return tuple(part for part in parts if part and isinstance(part[-1], Block))

    @property
    def is_recursive(self) -> bool:
        """Whether WITH RECURSIVE begins the query."""
        return kinds_of(self.nodes[:2]) == ["WITH", "RECURSIVE"]


@dataclass(frozen=True, eq=False, repr=False)
class Select:
    """A SELECT: its nodes from that word on, without ORDER BY and LIMIT of the set operation of which it is the last.

    `outer` is the SELECT in whose brackets it stands, of which `holder` is the node, and `cte` the name of the CTE that
    it is, "" for another. A few nodes are `behind` its parentheses, such as AS and a name.
    """

    nodes: Nodes
    outer: Select | None = None
    holder: Block | None = None
    cte: str = ""
    behind: Nodes = ()

    @cached_property
    def clauses(self) -> tuple[tuple[str, Nodes], ...]:
        """The clauses in their order: the type of the first word, and all nodes, that word the first of them."""
        clauses, start, kinds = list[tuple[str, Nodes]](), 0, [*kinds_of(self.nodes), ""]
        for at in range(1, len(kinds)):
            is_operator = kinds[at - 1 : at + 1] == ["DISTINCT", "FROM"]  # IS DISTINCT FROM
            if at == len(self.nodes) or (kinds[at] in _CLAUSES and not is_operator):
                clauses.append((kinds[start], self.nodes[start:at]))
                start = at
        return tuple(clauses)

    def section(self, kind: str) -> Nodes:
        """Return the first such clause with its first word; nothing where there is none."""
        for each, nodes in self.clauses:
            if each == kind:
                return nodes
        return ()

    def clause(self, kind: str) -> Nodes:
        """Return the first such clause without its first word; nothing where there is none."""
        return self.section(kind)[1:]

    def has(self, *kinds: str) -> bool:
        """Say whether there is one of these clauses."""
        return any(kind in kinds for kind, _ in self.clauses)

    @cached_property
    def is_distinct(self) -> bool:
        """Whether it is SELECT DISTINCT."""
        return kind_of(self.nodes, 1) == "DISTINCT"

    @cached_property
    def items(self) -> list[Nodes]:
        """The items of its select list."""
        return split(self.clause("SELECT")[self.is_distinct :])

    @cached_property
    def names(self) -> frozenset[str]:
        """All its words in lower case, with those of its subqueries."""
        return frozenset(ascii_lower(token.text) for token in flatten(self.nodes))

    @cached_property
    def start(self) -> int:
        """The first character in the text."""
        return first_token(self.nodes).start

    @cached_property
    def end(self) -> int:
        """The last character in the text."""
        return last_token(self.nodes).end

    def is_around(self, other: Select) -> bool:
        """Say whether another SELECT stands in brackets of this one."""
        return self.start < other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class CallNodes:
    """A call of an aggregate with its WITHIN GROUP and its FILTER; it `is_qualified` by a schema."""

    nodes: Nodes
    is_qualified: bool = False

    @property
    def name(self) -> str:
        """The aggregate, in lower case."""
        return name_of(self.nodes, 0)

    @property
    def called(self) -> Block:
        """Its parentheses."""
        called = parentheses_at(self.nodes, 1)
        assert called is not None  # noqa: S101 - of a call
        return called

    @property
    def arguments(self) -> Nodes:
        """What is in its parentheses."""
        return self.called.nodes


@dataclass(frozen=True, slots=True)
class Spelling:
    """A token as it compares with others: names and keywords without regard to case, values by what they are."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Slice:
    """Characters `start` to `end` of the text, with other text for some of them: each with its start and end."""

    start: int
    end: int
    replaced: tuple[tuple[int, int, str], ...] = ()


Parts = Sequence[str | Slice]  # of a text that is made of parts of the statement


def nest(tokens: Iterable[Token]) -> Block:
    """Return the bracket tree of some tokens."""
    levels: list[tuple[Token | None, list[Node]]] = [(None, [])]
    for token in tokens:
        kind = token.token_type.name
        if kind in _OPENINGS:
            levels.append((token, []))
        elif kind in _CLOSINGS and len(levels) > 1:
            opening, nodes = levels.pop()
            levels[-1][1].append(Block(opening, tuple(nodes), token))
        else:
            levels[-1][1].append(token)
    while len(levels) > 1:
        opening, nodes = levels.pop()
        levels[-1][1].append(Block(opening, tuple(nodes), None))
    return Block(None, tuple(levels[0][1]), None)


def find_open_block(tokens: Iterable[Token]) -> Block:
    """Return the innermost brackets that are open behind some tokens; the statement where none are."""
    block = nest(tokens)
    while block.nodes and isinstance(last := block.nodes[-1], Block) and last.closing is None:
        block = last
    return block


def flatten(nodes: Iterable[Node]) -> list[Token]:
    """Return the tokens of some nodes, with all brackets."""
    found: list[Token] = []
    levels: list[Iterator[Node]] = [iter(nodes)]
    while levels:
        for node in levels[-1]:
            if isinstance(node, Block):
                found += [node.opening] if node.opening is not None else []
                # The iterator of the level above stays where it is, and goes on behind this block when its level is
                # popped.
                levels.append(chain(node.nodes, () if node.closing is None else (node.closing,)))
                break
            found.append(node)
        else:
            levels.pop()
    return found


def kind_of(nodes: Sequence[Node], at: int) -> str:
    """Return the type of a node, which is that of the opening bracket of a block; "" where there is none."""
    if not 0 <= at < len(nodes):
        return ""
    node = nodes[at]
    return node.kind if isinstance(node, Block) else node.token_type.name


def kinds_of(nodes: Sequence[Node]) -> list[str]:
    """Return the types of some nodes."""
    kinds = list[str]()
    for node in nodes:
        kinds.append(node.kind if isinstance(node, Block) else node.token_type.name)
    return kinds


def name_of(nodes: Sequence[Node], at: int) -> str:
    """Return a word or a quoted name in lower case; "" for a block, and where there is none."""
    node = nodes[at] if 0 <= at < len(nodes) else None
    return "" if node is None or isinstance(node, Block) else ascii_lower(node.text)


def word_of(nodes: Sequence[Node], at: int) -> str:
    """Return a word that is not quoted, in lower case; "" for anything else."""
    return "" if kind_of(nodes, at) == "IDENTIFIER" else name_of(nodes, at)


def first_token(nodes: Sequence[Node]) -> Token:
    """Return the first token of some nodes, of which there must be one."""
    node = nodes[0]
    if not isinstance(node, Block):
        return node
    return node.opening or flatten(node.nodes)[0]


def last_token(nodes: Sequence[Node]) -> Token:
    """Return the last token of some nodes, of which there must be one."""
    node = nodes[-1]
    while isinstance(node, Block):
        if node.closing is not None:
            return node.closing
        if not node.nodes:
            return first_token([node])
        node = node.nodes[-1]
    return node


def make_token(kind: str, text: str, *, beside: Token) -> Token:
    """Return a token at the place of another one, so that errors about it point there."""
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, beside.line, beside.col, beside.start, beside.end)


def parentheses_at(nodes: Sequence[Node], at: int) -> Block | None:
    """Return the parentheses that a node is; None for any other node, and where there is none."""
    node = nodes[at] if 0 <= at < len(nodes) else None
    return node if isinstance(node, Block) and node.kind == "L_PAREN" else None


def enclose(nodes: Nodes, *, beside: Token) -> Block:
    """Return nodes in parentheses."""
    return Block(make_token("L_PAREN", "(", beside=beside), nodes, make_token("R_PAREN", ")", beside=beside))


def split(nodes: Nodes, kinds: Collection[str] = ("COMMA",)) -> list[Nodes]:
    """Return the parts of some nodes between those of these types."""
    parts, start = list[Nodes](), 0
    for at in range(len(nodes)):
        if kind_of(nodes, at) in kinds:
            parts.append(nodes[start:at])
            start = at + 1
    return [*parts, nodes[start:]]


def join(parts: Iterable[Nodes]) -> Nodes:
    """Return some parts with commas between them."""
    nodes = list[Node]()
    for part in parts:
        nodes += [make_token("COMMA", ",", beside=first_token(part))] if nodes else []
        nodes += part
    return tuple(nodes)


def list_blocks(block: Block) -> Iterator[Block]:
    """Yield a block and all blocks in it, in the order of the text."""
    waiting = [block]
    while waiting:
        block = waiting.pop()
        yield block
        waiting += [node for node in reversed(block.nodes) if isinstance(node, Block)]


def walk(nodes: Nodes, *, hidden: Callable[[Block], bool] = lambda _: False) -> Iterator[tuple[Nodes, int]]:
    """Yield all nodes in the order of the text, each as its place among those beside it; not those in `hidden` blocks.

    A block comes before what is in it.
    """
    waiting = [(nodes, 0)]
    while waiting:
        nodes, at = waiting.pop()
        if at >= len(nodes):
            continue
        yield nodes, at
        waiting.append((nodes, at + 1))
        node = nodes[at]
        if isinstance(node, Block) and not hidden(node):
            waiting.append((node.nodes, 0))


def rewrite(block: Block, rule: Callable[[Nodes], Nodes]) -> Block:
    """Return the tree in which a rule has replaced the nodes of each block, those of inner ones first."""
    made: dict[int, Block] = {}
    for each in reversed(list(list_blocks(block))):
        nodes = tuple(made.get(id(node), node) for node in each.nodes)
        changed = rule(nodes)
        is_same = len(changed) == len(each.nodes) and all(map(operator.is_, changed, each.nodes))
        made[id(each)] = each if is_same else Block(each.opening, changed, each.closing)
    return made[id(block)]


def apply_forms(tokens: Iterable[Token], forms: Iterable[Form]) -> list[Token]:
    """Return the tokens with what each form writes in place of some of them, in inner brackets first."""
    block = nest(tokens)
    for form in forms:
        block = rewrite(block, partial(_replace, form))
    return flatten(block.nodes)


def _replace(form: Form, nodes: Nodes) -> Nodes:
    written = list[Node]()
    at = 0
    while at < len(nodes):
        replaced, width = form(nodes, at)
        written += replaced if width else [nodes[at]]
        at += width or 1
    return tuple(written)


def call_at(nodes: Nodes, at: int) -> CallNodes | None:
    """Return the call of an aggregate that begins at a node, with its FILTER; None for a window and anything else."""
    if name_of(nodes, at) not in AGGREGATES or kind_of(nodes, at + 1) != "L_PAREN":
        return None
    end = at + 2
    if name_of(nodes, at) in QUANTILES:  # WITHIN GROUP (ORDER BY x) or [OFFSET(90)] may follow
        words = [name_of(nodes, end), name_of(nodes, end + 1), kind_of(nodes, end + 2)]
        end += 3 if words == ["within", "group", "L_PAREN"] else kind_of(nodes, end) == "L_BRACKET"
    if kinds_of(nodes[end : end + 2]) == ["FILTER", "L_PAREN"]:
        end += 2
    is_window = kind_of(nodes, end) == "OVER"
    return None if is_window else CallNodes(nodes[at:end], is_qualified=kind_of(nodes, at - 1) == "DOT")


def find_calls(nodes: Nodes) -> list[CallNodes]:
    """Return the calls of aggregates in some nodes, but no windows and none of a subquery.

    Those in the arguments of a window are found, those in the arguments of another call are not.
    """
    found, passed = list[CallNodes](), set[int]()

    def is_hidden(block: Block) -> bool:
        return block.is_query or id(block) in passed

    for beside, at in walk(nodes, hidden=is_hidden):
        call = call_at(beside, at)
        if call is not None:
            found.append(call)
            passed.update(map(id, call.nodes))
    return found


def find_selects(block: Block) -> list[Select]:
    """Return every SELECT, in the order of the text."""
    found = list[Select]()
    waiting: list[tuple[Block, Select | None, Block | None, str, Nodes]] = [(block, None, None, "", ())]
    while waiting:
        block, outer, holder, cte, behind = waiting.pop()
        nodes, start, last, selects = block.nodes, 0, len(block.nodes), list[Select]()
        # The "" behind the last node ends the last SELECT. ORDER BY ends a part of a UNION, but not a SELECT that
        # stands alone.
        for at, kind in enumerate([*kinds_of(nodes), ""]):
            is_part = kind_of(nodes, start - 1) in _BEFORE_PART
            begun = kind_of(nodes, start) == "SELECT" and at > start
            if begun and (kind in _ENDS_SELECT or (is_part and kind in _OF_THE_WHOLE)):
                name, after = "" if start else cte, behind if at == last else ()
                selects.append(Select(nodes[start:at], outer, holder, name, after))
                start = at
            elif not begun and kind_of(nodes, start) != "SELECT":
                start = at
        found += selects
        around = {id(node): select for select in selects for node in select.nodes}
        for at, node in enumerate(nodes):
            if isinstance(node, Block):
                here = (around[id(node)], node) if id(node) in around else (outer, holder)
                is_cte = kind_of(nodes, at - 1) == "ALIAS" and node.kind == "L_PAREN"
                name = name_of(nodes, at - 2) or name_of(nodes, at - 3)  # t AS (...), t(a, b) AS (...)
                waiting.append((node, *here, name if is_cte else "", nodes[at + 1 : at + 4]))
    return sorted(found, key=lambda each: each.start)


def cut(nodes: Nodes) -> Slice:
    """Return the part of the text that some nodes are."""
    return Slice(first_token(nodes).start, last_token(nodes).end + 1)


def find_place(statement: ScannedStatement, nodes: Nodes) -> Place:
    """Return the place of some nodes."""
    return statement.place(first_token(nodes), last_token(nodes))


def read_text(statement: ScannedStatement, nodes: Nodes) -> str:
    """Return some nodes as they are written, in one line."""
    return " ".join(statement.text[first_token(nodes).start : last_token(nodes).end + 1].split())


def spell(statement: ScannedStatement, nodes: Iterable[Node]) -> tuple[Spelling, ...]:
    """Return nodes as they compare with others, token by token; each ? is another value."""
    words = list[Spelling]()
    for token in flatten(nodes):
        value, kind = statement.value(token.text), token.token_type.name
        if value is not None:
            words.append(Spelling(value.kind, f"?{token.start}" if value.content == "?" else value.content))
        else:
            words.append(Spelling("name" if kind in _NAMES else kind, ascii_lower(token.text)))
    return tuple(words)
