"""What runs inside the arm64 root: every handler is imported, certificates are loaded, clients are
made, and the model embeds. Prints what came of it, as JSON."""

import importlib.util
import json
import platform
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def import_seconds(name: str) -> str:
    """The function's handler, as Lambda imports it."""
    spec = importlib.util.spec_from_file_location(f"{name}_handler", f"/var/task/{name}/handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return name if callable(module.lambda_handler) else ""


def tell(query: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that is asked of the layers."""
    handlers = [import_seconds(name) for name in query["functions"]]
    import psycopg
    from botocore.config import Config

    from strandline.aws import client_factory
    from strandline.config import get_settings
    from strandline.embeddings.factory import make_embedder

    embedder = make_embedder(get_settings())
    vectors = embedder.embed(query["texts"], timeout=600.0)
    return {
        "machine": platform.machine(),
        "sys": Path("/sys/devices").exists(),
        "imported": handlers,
        "authorities": len(ssl.create_default_context(cafile=query["certificates"]).get_ca_certs()),
        "libpq": psycopg.pq.version(),
        "clients": [
            client_factory.make_client(service, Config()).meta.service_model.service_name
            for service in ("s3", "sqs", "bedrock-runtime", "stepfunctions", "scheduler")
        ],
        "space": embedder.space,
        "vectors": [list(map(float, vector)) for vector in vectors],
    }


if __name__ == "__main__":
    sys.path.insert(0, "/opt/python")
    sys.stdout.write(json.dumps(tell(json.loads(sys.stdin.read()))))
