"""Reads a deployment's settings from the CDK context and rejects contradictory ones."""

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from infra.settings import SettingsError, StackSettings
from infra.validation import CHECKS
from strandline.config import ServiceSettings
from strandline.embeddings.factory import require_valid_embedding_settings
from strandline.embeddings.reachable import require_valid_previous
from strandline.errors import Misconfigured
from strandline.llm.factory import require_provider_settings


def load_stage_settings(context: Mapping[str, Any]) -> StackSettings:
    """The settings of the stage that the context names. Raises SettingsError with the reason.

    A stage is an object under "stages" in cdk.json's context. A field of the context itself (`-c
    network=nat`, objects as JSON) overrides the stage's.
    """
    _require_known_names(context)
    stages: Mapping[str, Mapping[str, Any]] = context.get("stages") or {}
    stage = context.get("stage") or "dev"
    if stage not in stages:
        stage_names = ", ".join(sorted(stages))
        raise SettingsError(
            f"stage {stage} is not in cdk.json (there are: {stage_names}). Add it to stages."
        )
    overrides = {
        n: _parse_context_value(n, context[n]) for n in StackSettings.model_fields if n in context
    }
    return build_valid_settings({**stages[stage], **overrides, "stage": stage})


def _require_known_names(context: Mapping[str, Any]) -> None:
    """Reject misspelt names, whose defaults would apply silently. Names that are not plain words
    belong to the CDK (`aws:…`, `@aws-cdk/…`)."""
    valid_names = {*StackSettings.model_fields, "stages"}
    for name in sorted(context.keys() - valid_names):
        if re.fullmatch(r"\w+", name):
            near = difflib.get_close_matches(name, valid_names, 1)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else "docs/configuration.md, Stack settings, has them all"
            )
            raise SettingsError(f"-c {name}: there is no such setting; {hint}")


def build_valid_settings(values: Mapping[str, Any]) -> StackSettings:
    """Settings of these values. Raises SettingsError with the name of every wrong field."""
    try:
        settings = StackSettings.model_validate(values)
        _require_consistent_settings(settings)
        require_provider_settings(settings.service_settings)
        require_valid_embedding_settings(settings.service_settings)
        require_valid_previous(settings.service_settings)
    except Misconfigured as cause:
        raise SettingsError(f"The stack cannot be made. settings: {cause}") from None
    except ValidationError as error:
        prefix = ("settings",) if error.title == ServiceSettings.__name__ else ()
        problems = [
            ": ".join(
                filter(
                    None,
                    (".".join(map(str, (*prefix, *e["loc"]))), _strip_pydantic_prefix(e["msg"])),
                )
            )
            for e in error.errors(include_url=False, include_input=False)
        ]
        raise SettingsError(f"The stack cannot be made. {'; '.join(problems)}.") from None
    return settings


def _require_consistent_settings(settings: StackSettings) -> None:
    """Raise SettingsError if settings that are each valid contradict one another."""
    for refuse in CHECKS:
        if refusal := refuse(settings):
            raise SettingsError(f"The stack cannot be made. {refusal}.")


def _strip_pydantic_prefix(message: str) -> str:
    """The message without pydantic's prefix."""
    return message.removeprefix("Value error, ")


def _parse_context_value(name: str, value: Any) -> Any:
    """A value of the command line; objects and lists are JSON."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise SettingsError(f"-c {name}: is no JSON ({error})") from None
    return value
