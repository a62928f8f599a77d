"""Limits of one build of the topic index."""

import math

MAX_SHARDS = 16
"""The maximum number of shards of a tenant's build."""
SCOPES_PER_SHARD = 50
"""The number of waiting scopes per shard."""
MAX_VERSIONS = 2000
"""The maximum number of chain versions of a scope that one build inserts."""
MAX_VERSIONS_WITH_MODEL = 200
"""The same limit where a language model writes the summaries, which takes seconds each."""


def count_shards(scopes: int) -> int:
    """The number of shards of a build of so many scopes."""
    return min(MAX_SHARDS, max(1, math.ceil(scopes / SCOPES_PER_SHARD)))


def get_max_versions_per_scope(*, has_model: bool) -> int:
    """The maximum number of chain versions of a scope that one build inserts."""
    return MAX_VERSIONS_WITH_MODEL if has_model else MAX_VERSIONS
