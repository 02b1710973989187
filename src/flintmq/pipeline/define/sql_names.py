"""Which tables a query reads, by its text alone: no parser, no Spark. Pure.

Tables are names after FROM, JOIN, and commas between tables; not names of WITH, table functions,
strings and comments. Names of a catalog (`a.b`) are ignored. It works on wrong SQL, too.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<skip> \s+ | --[^\n]* | /\*.*?\*/ )
  | (?P<string> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
  | `(?P<quoted>(?:[^`]|``)*)`
  | (?P<word> [^\W\d]\w* | \d\w* )
  | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDS_OF_TABLES = frozenset(
    {
        "where", "group", "having", "order", "limit", "union", "intersect", "except", "minus",
        "window", "lateral", "sort", "cluster", "distribute", "offset", "qualify", "select",
        "tablesample", "pivot", "unpivot",
    }
)  # fmt: skip
_BEHIND_A_TABLE = frozenset(
    {"on", "using", "join", "left", "right", "full", "inner", "outer", "cross", "natural", "semi",
     "anti", "watermark", "for", "timestamp", "version", "then"}
)  # fmt: skip
_BEFORE_A_TABLE = frozenset({"from", "join", "table"})
_NOT_NAMES = frozenset({"lateral", "values", "select", "table", "stream", "unnest", "with"})


class Token(NamedTuple):
    text: str
    offset: int
    kind: str
    end: int


class Mention(NamedTuple):
    """A table in a query, and its place in the text."""

    name: str
    offset: int
    end: int
    has_alias: bool
    """Whether the query gives it an alias."""


def mentions(sql: str) -> list[Mention]:
    """The tables that a query reads, in order."""
    tokens = list(_tokens(sql))
    own = _names_of_with(tokens)
    return [
        found for found in _mentions(tokens) if found.offset < own.get(found.name.lower(), len(sql))
    ]


def as_streams(sql: str, streams: Container[str]) -> str:
    """The query with `STREAM(name)` for these tables, as Spark's Declarative Pipelines need it."""
    parts, at = [], 0
    for found in mentions(sql):
        if found.name.lower() in streams:
            written = sql[found.offset : found.end]
            alias = "" if found.has_alias else f" as {written}"
            parts += [sql[at : found.offset], f"STREAM({written}){alias}"]
            at = found.end
    return "".join([*parts, sql[at:]])


def first_word(sql: str) -> Token | None:
    """The first word of a text, without comments."""
    return next(_tokens(sql), None)


def bare(sql: str) -> str:
    """The text without comments, and with one space between words."""
    return " ".join(
        f"`{token.text}`" if token.kind == "quoted" else token.text for token in _tokens(sql)
    )


def _tokens(sql: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or ""
        if kind != "skip":
            yield Token(found[kind], found.start(), kind, found.end())


def _names_of_with(tokens: list[Token]) -> dict[str, int]:
    """The names that WITH defines (`with NAME as (`, `, NAME (columns) as (`), and where each takes
    effect: after its query, which may read a table of the same name."""
    names: dict[str, int] = {}
    is_recursive = any(_is_word(token, "recursive") for token in tokens)
    for index, token in enumerate(tokens[:-1]):
        if not (_is_word(token, "as") and tokens[index + 1].text == "("):
            continue
        at = index - 1
        if at >= 0 and tokens[at].text == ")":
            while at > 0 and tokens[at].text != "(":
                at -= 1
            at -= 1
        before = tokens[at - 1].text.lower() if at > 0 else ""
        if at > 0 and before in ("with", ",", "recursive"):
            begins = tokens[at].offset if is_recursive else _end_of_bracket(tokens, index + 1)
            names.setdefault(tokens[at].text.lower(), begins)
    return names


def _end_of_bracket(tokens: list[Token], opened: int) -> int:
    depth = 0
    for token in tokens[opened:]:
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
            if not depth:
                return token.offset
    return tokens[-1].end


def _mentions(tokens: list[Token]) -> Iterator[Mention]:
    depths: list[bool] = [False]
    """For each open bracket: whether a table follows a comma."""
    expects = False
    for index, token in enumerate(tokens):
        word = token.text.lower() if token.kind == "word" else ""
        if token.text == "(" and token.kind == "sign":
            depths.append(expects)  # from (orders join ...)
            continue
        if token.text == ")" and token.kind == "sign":
            if len(depths) > 1:
                depths.pop()
            expects = False
            continue
        is_name = index > 0 and tokens[index - 1].text.lower() in (".", "as")
        if word in _BEFORE_A_TABLE and not is_name and not _is_inside_a_call(tokens, index):
            expects = depths[-1] = True
            continue
        if word in _ENDS_OF_TABLES:
            expects = depths[-1] = False
            continue
        if word in ("on", "using"):
            expects = False  # a comma after the condition is followed by a table again
            continue
        if token.text == "," and token.kind == "sign":
            expects = depths[-1]
            continue
        if expects and token.kind in ("word", "quoted"):
            if word in _NOT_NAMES:
                expects = word in ("stream", "table")
                if word == "values":
                    depths[-1] = False  # the commas separate rows, not tables
                continue
            following = tokens[index + 1].text if index + 1 < len(tokens) else ""
            if following not in ("(", "."):
                yield Mention(token.text, token.offset, token.end, _is_alias(tokens, index + 1))
        expects = False


def _is_inside_a_call(tokens: list[Token], index: int) -> bool:
    """`extract(day from at)`, `trim(both from x)`, `is distinct from`: no tables follow."""
    if _is_word(tokens[index], "from"):
        if index > 0 and _is_word(tokens[index - 1], "distinct") and index > 1:
            return tokens[index - 2].text.lower() in ("is", "not")
        depth = 0
        for at in range(index - 1, -1, -1):
            text = tokens[at].text.lower()
            if text == ")":
                depth += 1
            elif text == "(":
                if not depth:
                    caller = tokens[at - 1].text.lower() if at else ""
                    return caller in ("extract", "trim", "substring", "substr", "overlay")
                depth -= 1
    return False


def _is_alias(tokens: list[Token], index: int) -> bool:
    if index >= len(tokens):
        return False
    token = tokens[index]
    return token.kind == "quoted" or (
        token.kind == "word" and token.text.lower() not in _ENDS_OF_TABLES | _BEHIND_A_TABLE
    )


def _is_word(token: Token, word: str) -> bool:
    return token.kind == "word" and token.text.lower() == word
