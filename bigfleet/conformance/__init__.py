"""Conformance tests of the provider contract, over gRPC against any provider.

`rules/` holds the checks, one function each; `ports/provider.py` states the contract.
"""
