"""Configuration files: every key with its line, and faults with their place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config.documents import DocumentNode, toml_document, yaml_document
from flintmq.config.files import FileUnreadable, entries_of, read_entries

TRICKY = '''
# max = "a comment"
plain = 1   # trailing = "comment"
"quoted key" = "a # that is none"
'literal' = 'x = [1, {'
dotted . "with spaces" . deep = true
text = """
not_a_key = 1
[not_a_table]
a quote \\""" and two "" and
the end""""
raw = \'\'\'
also = "none"\'\'\'
list = [
  1, # comment ]
  "]", [2, 3],
  { a = "}" },
]
inline = { x = 1, y = [1, 2] }
last_at_top = 1979-05-27T07:32:00Z

[table]
key = 1
[table."inner.name"]
key = 2
[[many]]
name = "first"
[[many]]
name = "second"
[a.b.c]
"es\\u0063aped" = 0
no_newline_at_the_end = 1'''


def spots(
    node: DocumentNode, before: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Where every key stands, also those in lists."""
    for key, inner in node.entries.items():
        path = (*before, key)
        yield ".".join(path), node.key_spots[key]
        yield from spots(inner, path)
    for index, item in enumerate(node.items):
        yield from spots(item, (*before, str(index)))


def test_the_place_of_every_key_whatever_stands_before_it() -> None:
    tomllib.loads(TRICKY)  # it is a document

    assert dict(spots(toml_document(TRICKY, "x"))) == {
        "plain": (3, 1), "quoted key": (4, 1), "literal": (5, 1), "dotted": (6, 1),
        "dotted.with spaces": (6, 10), "dotted.with spaces.deep": (6, 26), "text": (7, 1),
        "raw": (12, 1), "list": (14, 1), "list.3.a": (17, 5), "inline": (19, 1),
        "inline.x": (19, 12), "inline.y": (19, 19), "last_at_top": (20, 1), "table": (22, 2),
        "table.key": (23, 1), "table.inner.name": (24, 8), "table.inner.name.key": (25, 1),
        "many": (26, 3), "many.0.name": (27, 1), "many.1.name": (29, 1), "a": (30, 2),
        "a.b": (30, 4), "a.b.c": (30, 6), "a.b.c.escaped": (31, 1),
        "a.b.c.no_newline_at_the_end": (32, 1),
    }  # fmt: skip


values = st.recursive(
    st.sampled_from(['1', '"a"', "'b'", '"""\nk = 1\n"""', "'''\n[t]\n'''", '"\\""', "true"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda many: "[\n" + ",\n".join(many) + "]"),
    max_leaves=4,
)  # fmt: skip
keys = st.sampled_from(["a", "b-c", '"d e"', "'f.g'", "h.i", 'j."k#"', '"[l]"'])


@given(st.lists(st.tuples(keys, values, st.sampled_from(["", "\n", "# x = 1\n", "  "]))))
def test_keys_are_told_from_values_in_any_document(parts: list[tuple[str, str, str]]) -> None:
    text, expected = "", {}
    for number, (key, value, before) in enumerate(parts):
        text += before
        expected[number] = text.count("\n") + 1
        text += f"[table-{number}]\n{key} = {value}\n"
    tomllib.loads(text)

    document = toml_document(text, "x")
    assert {n: document.key_spots[f"table-{n}"].line for n in expected} == expected
    inner = [spot.line for table in document.entries.values() for spot in table.key_spots.values()]
    assert inner == [line + 1 for line in expected.values()]


def written(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.toml", 'fsync = "never"\n\n[log_levels]\nflintmq.engine = "info"\n'),
        ("x.yaml", "fsync: never\n\nlog_levels:\n  flintmq:\n    engine: info\n"),
        ("x.YML", "fsync: never\r\n\r\nlog_levels:\r\n  flintmq.engine: info\r\n"),
        (
            "x.toml",
            '\ufefffsync = "never"\r\n\r\n[log_levels]\r\n"flintmq.engine" = "info"\r\n',
        ),
    ],
)
def test_both_languages_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    first, second = read_entries(written(tmp_path, name, text))

    assert (first.key, first.value, first.line) == ("fsync", "never", 1)
    assert (second.key, second.line) == ("log_levels", 3)
    assert second.inner_lines["flintmq.engine"] in (4, 5)


FAULTS: list[tuple[str, str | bytes, str]] = [
    ("x.toml", "a = 1\nb = = 2\n", r"x\.toml:2:5: "),
    ("x.toml", 'a = 1\nb = "open', r"x\.toml:2:\d+: "),
    ("x.toml", "a = 1\na = 2\n", r"x\.toml:2:1: a is defined twice"),
    ("x.toml", "a = " + "[" * 100_000, r"x\.toml:1:"),
    ("x.toml", b"a = 1\nb = '\xff'", r"x\.toml:2: is not UTF-8"),
    ("x.yaml", "a: 1\nb: [2\nc: 3", r"x\.yaml:3:2: "),
    ("x.yaml", "a: 1\nb: 2\na: 3\n", r"^[^:]*x\.yaml:3:1: a is defined twice, first on line 1"),
    ("x.yaml", "- a\n- b\n", r"x\.yaml:1: not a table"),
    ("x.yaml", "a: !!python/object/apply:os.system ['true']", r"x\.yaml:1:4: could not determine"),
    ("x.yaml", "a: 1\n---\nb: 2\n", r"x\.yaml:2:1: "),
    ("x.yaml", "a: b\nc: \x01", r"x\.yaml:2:4: .*not allowed"),
    ("x.yaml", "a: &x [*x]", r"x\.yaml"),
    (
        "x.json",
        "{}",
        r"x\.json: a configuration file must end in \.toml, \.yaml, \.yml, not '\.json'",
    ),
    ("flintmq", "", "must end in"),
    ("x.toml", b"#" * (1024 * 1024 + 1), "not a configuration file"),
]


@pytest.mark.parametrize(("name", "text", "said"), FAULTS)
def test_a_fault_is_one_line_with_its_place(
    tmp_path: Path, name: str, text: str | bytes, said: str
) -> None:
    with pytest.raises(FileUnreadable) as fault:
        read_entries(written(tmp_path, name, text))
    assert re.search(said, str(fault.value)), fault.value
    assert "\n" not in str(fault.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=r"none\.toml: cannot read the file: No such file"):
        read_entries(tmp_path / "none.toml")
    (tmp_path / "dir.toml").mkdir()
    with pytest.raises(FileUnreadable, match="Is a directory"):
        read_entries(tmp_path / "dir.toml")


@pytest.mark.parametrize("name", ["x.toml", "x.yaml"])
def test_an_empty_file_says_nothing(tmp_path: Path, name: str) -> None:
    assert read_entries(written(tmp_path, name, "# only a comment\n")) == []


@pytest.mark.parametrize("name", ["x.toml", "x.yaml"])
@given(text=st.text(alphabet="ab:=[]{}\"'#\n \\&*!-|>", max_size=30))
def test_no_text_is_anything_but_entries_or_a_fault(name: str, text: str) -> None:
    read = toml_document if name == "x.toml" else yaml_document
    try:
        document = read(text, name)
    except FileUnreadable:
        return
    for entry in entries_of(document):
        assert 1 <= entry.line <= text.count("\n") + 1
