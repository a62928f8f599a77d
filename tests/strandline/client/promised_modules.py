"""The modules that an import of the client loads."""

PROMISED_MODULES = 130
"""Most modules that an import of the client loads, those of the standard library among them. Unlike
its time, their count is the same on a busy machine."""

LIST_MODULES = """
import sys
before = set(sys.modules)
from strandline import AsyncStrandline, Strandline
client = Strandline("http://127.0.0.1:1", "key")
modules = sorted(set(sys.modules) - before)
import json
print(json.dumps(modules))
"""
