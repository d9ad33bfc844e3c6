"""Whether a provider keeps its contract, asked over the wire: any provider, at any address.

`rules/` holds the checks, one function each; `ports/provider.py` says what they hold a provider to.
"""
