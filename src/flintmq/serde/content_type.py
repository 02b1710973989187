"""The content type: what a message says of how to decode it.

    application/json; pre=sign; encoding=gzip; post=seal; header=flint

The media type names the format. The parameters, in this order and only where used, name the hooks
that ran before compression, the compression, the hooks that ran after it, and the magic header in
front of the value; `schema` is the fingerprint of an Avro schema, and `format` names the format
where the media type is one of the caller's own. A message without a content type
is raw bytes, or of its topic's format. Parameters of others (such as a charset) are left alone;
among them are two that have our names: `text/plain; format=flowed` (RFC 3676) and
`text/csv; header=present` (RFC 4180).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

_OF_OTHERS = {
    ("text/plain", "format"): ("flowed", "fixed"),
    ("text/csv", "header"): ("present", "absent"),
}


class ContentType(NamedTuple):
    media_type: str
    pre_hooks: tuple[str, ...] = ()
    encoding: str = "none"
    post_hooks: tuple[str, ...] = ()
    header: str = "none"
    schema: str = ""
    format: str = ""


_PARAMETERS = {
    "format": "format",
    "schema": "schema",
    "pre": "pre_hooks",
    "encoding": "encoding",
    "post": "post_hooks",
    "header": "header",
}


@lru_cache(maxsize=1024)
def parse_content_type(text: str) -> ContentType:
    """What a content type says. Any text is one; what is not understood is left out."""
    media_type, *parameters = text.split(";")
    media_type = media_type.strip().lower()
    found: dict[str, str] = {}
    for parameter in parameters:
        name, separator, value = parameter.strip().partition("=")
        name, value = name.strip().lower(), value.strip().strip('"')
        if separator and value.lower() not in _OF_OTHERS.get((media_type, name), ()):
            found.setdefault(name, value)
    return ContentType(
        media_type,
        _names(found.get("pre", "")),
        found.get("encoding", "none").lower(),
        _names(found.get("post", "")),
        found.get("header", "none").lower(),
        found.get("schema", ""),
        found.get("format", ""),
    )


def format_content_type(content_type: ContentType) -> str:
    parts = [content_type.media_type]
    for name, field in _PARAMETERS.items():
        value = getattr(content_type, field)
        if value != ContentType._field_defaults[field]:
            parts.append(f"{name}={value if isinstance(value, str) else ','.join(value)}")
    return "; ".join(parts)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
