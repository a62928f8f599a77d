"""Strandline: a memory service for AI agents. Importing the package imports nothing else; the
client's classes are imported when they are first named."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from strandline.client.clients import AsyncStrandline as AsyncStrandline
    from strandline.client.clients import Strandline as Strandline
    from strandline.client.errors import ServiceError as ServiceError
else:

    def __getattr__(name):
        modules = {
            "AsyncStrandline": "clients",
            "Strandline": "clients",
            "ServiceError": "errors",
        }
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.client.{modules[name]}"), name)
