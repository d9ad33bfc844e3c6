"""All tests, by the package they hold to its promises."""
