"""Decodes what a person wrote into a struct, and says everything that is wrong with it.

msgspec decodes and checks; it stops at the first mistake. Here every key is
looked at, so that one run of the tool names all mistakes of a file, each with
its dotted path, its value and what to write instead.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from loaddriver.strict_hints import unknown_key_fix

T = TypeVar("T", bound=msgspec.Struct)


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of everything read from YAML: immutable, camelCase outside, nothing extra."""


class Problem(msgspec.Struct, frozen=True):
    """One mistake: where (dotted path, empty for the whole file) and what to do about it."""

    path: str
    text: str


def decode(raw: Any, shape: type[T]) -> tuple[T | None, list[Problem]]:
    """The struct and no problems, or no struct and all problems."""
    problems = list(_struct_problems(raw, shape, "", schema_paths(shape)))
    if problems:
        return None, problems
    return msgspec.convert(raw, shape), []


def schema_paths(shape: type[msgspec.Struct], prefix: str = "") -> tuple[str, ...]:
    """Every dotted key that `shape` knows, lists left out of the path."""
    paths: list[str] = []
    for name, kind in _fields_of(shape).items():
        paths.append(prefix + name)
        for inner in _structs_within(kind):
            paths.extend(schema_paths(inner, f"{prefix}{name}."))
    return tuple(paths)


def _fields_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(shape, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(shape)}


def _branches(kind: Any) -> tuple[Any, ...]:
    """The members of a union, else the type itself."""
    if get_origin(kind) in (Union, types.UnionType):
        return get_args(kind)
    return (kind,)


def _structs_within(kind: Any) -> Iterator[type[msgspec.Struct]]:
    for branch in _branches(kind):
        if isinstance(branch, type) and issubclass(branch, msgspec.Struct):
            yield branch
        elif get_origin(branch) is tuple:
            yield from _structs_within(get_args(branch)[0])


def _struct_problems(
    raw: Any, shape: type[msgspec.Struct], path: str, known: tuple[str, ...]
) -> Iterator[Problem]:
    if not isinstance(raw, Mapping):
        yield Problem(path, f"expected keys and values, got {_shown(raw)}")
        return
    fields = _fields_of(shape)
    for key in raw:
        if key not in fields:
            yield Problem(_join(path, str(key)), unknown_key_fix(str(key), path, fields, known))
    for field in msgspec.structs.fields(shape):
        where = _join(path, field.encode_name)
        if field.encode_name in raw:
            kind = fields[field.encode_name]
            yield from _value_problems(raw[field.encode_name], kind, where, known)
        elif field.required:
            yield Problem(where, "is missing, and has no default")


def _value_problems(value: Any, kind: Any, path: str, known: tuple[str, ...]) -> Iterator[Problem]:
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    for branch in _branches(bare):
        if isinstance(value, Mapping) and branch in tuple(_structs_within(branch)):
            yield from _struct_problems(value, branch, path, known)
            return
        if isinstance(value, list) and get_origin(branch) is tuple:
            yield from _list_problems(value, kind, branch, path, known)
            return
        if isinstance(value, Mapping) and get_origin(branch) is dict:
            for key, item in value.items():
                yield from _value_problems(item, get_args(branch)[1], _join(path, str(key)), known)
            return
    yield from _leaf_problems(value, kind, path)


def _list_problems(
    values: list[Any], kind: Any, branch: Any, path: str, known: tuple[str, ...]
) -> Iterator[Problem]:
    item_kind = get_args(branch)[0]
    inner = [
        problem
        for position, value in enumerate(values)
        for problem in _value_problems(value, item_kind, f"{path}[{position}]", known)
    ]
    yield from inner or _leaf_problems(values, kind, path)


def _leaf_problems(value: Any, kind: Any, path: str) -> Iterator[Problem]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        complaint = str(error).split(" - at ")[0].replace("`", "")
        yield Problem(path, f"= {_shown(value)}: {complaint[:1].lower()}{complaint[1:]}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
