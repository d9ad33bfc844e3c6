"""Adds the flags that a configuration's fields declare to a parser, and reads their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from bigfleet.flags import Flag
from bigfleet.model.errors import InvalidInput

_NO_DEFAULT = object()


class LazyParser(argparse.ArgumentParser):
    """A parser that adds its flags when it is used: only the chosen role's modules are imported."""

    def __init__(self, *args: Any, fill: Callable[[Any], None] | None = None, **options: Any):
        super().__init__(*args, **options)
        self._fill = fill

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ArgumentParser does, with all flags present."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)
        return super().parse_known_args(args, namespace)


@dataclass(frozen=True)
class _Option:
    """A field's flag, the type that the field takes, and its default or _NO_DEFAULT."""

    flag: Flag
    type: Any
    default: Any

    @property
    def destination(self) -> str:
        return self.flag.name.lstrip("-").replace("-", "_")


def add_config(
    parser: argparse.ArgumentParser, config: Any, only: Container[str] | None = None
) -> None:
    """Add the flags of the dataclass `config`, or of the fields in `only`."""
    for name, options, nested in _declared(config):
        if only is not None and name not in only:
            continue
        if nested is not None:
            add_config(parser, nested)
        for option in options:
            _add(parser, option)


def config_values(config: Any, flags: argparse.Namespace) -> dict[str, Any]:
    """The values of the fields of `config` that have flags."""
    values: dict[str, Any] = {}
    for name, options, nested in _declared(config):
        if nested is not None:
            values[name] = nested(**config_values(nested, flags))
        for option in options:
            _set(values, name, option, getattr(flags, option.destination))
    return values


def _set(values: dict[str, Any], name: str, option: _Option, given: Any) -> None:
    """Defaults bypass argparse, which would parse those that are strings."""
    flag = option.flag
    if given is None:
        value = option.default
    elif flag.host_field:
        values[flag.host_field], value = given
    elif flag.repeated:
        value = tuple(given)
    else:
        value = given if flag.choices is None else flag.choices[given]
    if flag.key is None:
        values[name] = value
    else:
        values.setdefault(name, {})[flag.key] = value


def _declared(config: Any) -> Iterator[tuple[str, list[_Option], Any]]:
    """Each field with its flags, or with the nested dataclass whose fields have some."""
    hints = get_type_hints(config, include_extras=True)
    for each in fields(config):
        hint = hints[each.name]
        if get_origin(hint) is Annotated:
            kind, *flags = get_args(hint)
            yield each.name, [_option(flag, kind, each) for flag in flags], None
        elif is_dataclass(hint) and any(options for _, options, _ in _declared(hint)):
            yield each.name, [], hint


def _option(flag: Flag, hint: Any, field: Field[Any]) -> _Option:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    default = field.default if field.default is not MISSING else _NO_DEFAULT
    if field.default_factory is not MISSING:
        default = field.default_factory()
    if flag.key is not None:
        default = cast(Mapping[Hashable, Any], default)[flag.key]
    if default is _NO_DEFAULT and NoneType in kinds:
        default = None
    kind = float if flag.key is not None else next(each for each in kinds if each is not NoneType)
    return _Option(flag, kind, default)


def _add(parser: argparse.ArgumentParser, option: _Option) -> None:
    flag, default = option.flag, option.default
    if option.type is bool:
        parser.add_argument(flag.name, action="store_true", help=flag.help)
        return
    options: dict[str, Any] = {"help": _help(flag, default)}
    if flag.choices is not None:
        options["choices"] = list(flag.choices)
    elif flag.repeated:
        options.update(action="append", metavar=flag.metavar)
    else:
        options["type"] = option.type if flag.parse is None else checked(flag.parse)
        options["metavar"] = flag.metavar
    parser.add_argument(flag.name, required=default is _NO_DEFAULT, **options)


def _help(flag: Flag, default: Any) -> str:
    shown = "" if default is _NO_DEFAULT else _shown(flag, default)
    suffix = f"(default: {shown})" if shown else ""
    return f"{flag.help} {suffix}".strip()


def _shown(flag: Flag, default: Any) -> str:
    if flag.choices is not None:
        return next(text for text, value in flag.choices.items() if value == default)
    if default is None or default in ("", (), {}):
        return ""
    if flag.show is not None:
        return flag.show(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """`parse` with its error's own message."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, InvalidInput) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked
