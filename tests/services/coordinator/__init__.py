"""The coordinator: leadership, domains, instructions, operations."""
