"""Decodes parsed YAML into a struct and reports every mistake in it.

msgspec stops at the first mistake. Here every key is checked, so that one run of the tool lists all
mistakes of a file, each with its dotted path, its value and a hint.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from loaddriver.profile.hints import unknown_key_hint

T = TypeVar("T", bound=msgspec.Struct)


class ConfigStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The base of all structs read from YAML: immutable, camelCase keys, no unknown keys."""


class FieldError(msgspec.Struct, frozen=True):
    """One mistake: its dotted path (empty for the whole file), and a text with a hint."""

    path: str
    text: str


def decode(raw: Any, shape: type[T]) -> tuple[T | None, list[FieldError]]:
    """Return the struct and no errors, or no struct and all errors."""
    problems = list(_struct_errors(raw, shape, "", schema_paths(shape)))
    if problems:
        return None, problems
    return msgspec.convert(raw, shape), []


@cache
def schema_paths(shape: type[msgspec.Struct], prefix: str = "") -> tuple[str, ...]:
    """Every dotted key of `shape`, without list indices."""
    paths: list[str] = []
    for name, annotation in _fields_of(shape).items():
        paths.append(prefix + name)
        for inner in _structs_within(annotation):
            paths.extend(schema_paths(inner, f"{prefix}{name}."))
    return tuple(paths)


@cache  # reading the annotations takes longer than all else
def _fields_of(shape: type[msgspec.Struct]) -> Mapping[str, Any]:
    hints = get_type_hints(shape, include_extras=True)
    return {field.encode_name: hints[field.name] for field in _struct_fields(shape)}


_struct_fields = cache(msgspec.structs.fields)


def _branches(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, else the type itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _structs_within(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    for branch in _branches(annotation):
        if isinstance(branch, type) and issubclass(branch, msgspec.Struct):
            yield branch
        elif get_origin(branch) is tuple:
            yield from _structs_within(get_args(branch)[0])


def _struct_errors(
    raw: Any, shape: type[msgspec.Struct], path: str, known: tuple[str, ...]
) -> Iterator[FieldError]:
    if not isinstance(raw, Mapping):
        yield FieldError(path, f"expected keys and values, got {_abbreviated(raw)}")
        return
    fields = _fields_of(shape)
    for key in raw:
        if key not in fields:
            yield FieldError(_join(path, str(key)), unknown_key_hint(str(key), path, fields, known))
    for field in _struct_fields(shape):
        where = _join(path, field.encode_name)
        if field.encode_name in raw:
            annotation = fields[field.encode_name]
            yield from _value_errors(raw[field.encode_name], annotation, where, known)
        elif field.required:
            yield FieldError(where, "is missing")


def _value_errors(
    value: Any, annotation: Any, path: str, known: tuple[str, ...]
) -> Iterator[FieldError]:
    unwrapped = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    for branch in _branches(unwrapped):
        if isinstance(value, Mapping) and branch in tuple(_structs_within(branch)):
            yield from _struct_errors(value, branch, path, known)
            return
        if isinstance(value, list) and get_origin(branch) is tuple:
            yield from _list_errors(value, annotation, branch, path, known)
            return
        if isinstance(value, Mapping) and get_origin(branch) is dict:
            for key, item in value.items():
                yield from _value_errors(item, get_args(branch)[1], _join(path, str(key)), known)
            return
    yield from _leaf_errors(value, annotation, path)


def _list_errors(
    values: list[Any], annotation: Any, branch: Any, path: str, known: tuple[str, ...]
) -> Iterator[FieldError]:
    item_type = get_args(branch)[0]
    inner = [
        problem
        for position, value in enumerate(values)
        for problem in _value_errors(value, item_type, f"{path}[{position}]", known)
    ]
    yield from inner or _leaf_errors(values, annotation, path)


def _leaf_errors(value: Any, annotation: Any, path: str) -> Iterator[FieldError]:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        message = str(error).split(" - at ")[0].replace("`", "")
        yield FieldError(path, f"= {_abbreviated(value)}: {message[:1].lower()}{message[1:]}")


def _abbreviated(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
