"""All tests, by the package they hold to its promises."""

from pathlib import Path

import pytest

# Asserts of rigs show their values, too.
_FOLDERS = (path.name for path in Path(__file__).parent.iterdir() if path.is_dir())
pytest.register_assert_rewrite(*(f"tests.{name}" for name in _FOLDERS))
