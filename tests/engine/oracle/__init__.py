"""The rules of the decision once more, written the plain way; the engine must agree."""
