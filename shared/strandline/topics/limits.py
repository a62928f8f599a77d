"""How much one build of the topic index does."""

import math

MAX_SHARDS = 16
"""How many shards a tenant's build has at most."""
SCOPES_PER_SHARD = 50
"""How many scopes that wait make a further shard."""
MAX_VERSIONS = 2000
"""How many chain versions of a scope a build takes in at most."""
MAX_VERSIONS_WITH_MODEL = 200
"""The same where a language model writes the summaries: it takes seconds for each."""


def count_shards(scopes: int) -> int:
    """How many shards a build of so many scopes has."""
    return min(MAX_SHARDS, max(1, math.ceil(scopes / SCOPES_PER_SHARD)))


def max_versions(*, has_model: bool) -> int:
    """How many chain versions of a scope a build takes in at most."""
    return MAX_VERSIONS_WITH_MODEL if has_model else MAX_VERSIONS
