"""`strandline operate`: an operator's commands on the database, with the deployment's own secrets
and without a key. The module `operator_actions` of the service's distribution does the work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from strandline.client.request_building import qualify_participant
from strandline.commands.invocation import (
    RenamedCommandsGroup,
    import_service_module,
    refuse_former_option,
)
from strandline.commands.output import print_json_line, print_text

_DEFAULT_GRACE_HOURS = 24.0
_NEW_WORDS = {
    "key": "strandline operate keys create",
    "rotate": "strandline operate keys rotate",
    "revoke": "strandline operate keys revoke",
    "certificate": "strandline operate certificates create",
    "revoke-certificate": "strandline operate certificates revoke",
}
NEW_WORDS = {
    **_NEW_WORDS,
    "certificates": "strandline operate certificates list",
    **{word: f"strandline operate {word}" for word in ("refold", "receipt", "migrate")},
}
"""What these commands were called when they had a program of their own."""

_tenant = click.option("--tenant", required=True, help="Its name: a-z, 0-9 and hyphens.")
_days = click.option("--days", type=int, help="How long it is valid; for ever if absent.")
_file = click.Path(path_type=Path)


def _qualify_user(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    del context, parameter
    return None if value is None else qualify_participant(value, "user")


def _add_new_credential_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that describe the key or the certificate to be made."""
    for option in (
        click.option("--label", default="", help="What it is for."),
        _days,
        refuse_former_option("--rights", "--right, once for each: --right read --right write"),
        click.option(
            *("--right", "rights"),
            multiple=True,
            help="read, write, admin, operator or erase; repeated for several [read and write].",
        ),
        click.option(
            "--user",
            callback=_qualify_user,
            help="Bind it to this user, NAME or user:NAME: it reads and writes as that user only.",
        ),
        _tenant,
    ):
        command = option(command)
    return command


def _import_operator_actions() -> Any:
    return import_service_module("strandline.operator_actions")


@click.group("operate", cls=RenamedCommandsGroup, new_words=_NEW_WORDS)
def operate_group() -> None:
    """Work on the database itself: keys, migrations, receipts.

    The deployment's own settings are in the environment, or are those of the service that `make
    run` started here. Needs the service's distribution.
    """


@operate_group.group("keys")
def keys_group() -> None:
    """API keys of a tenant."""


@keys_group.command("create")
@_add_new_credential_options
def create_key(tenant: str, **options: Any) -> None:
    """Make a key; it is shown once and stored nowhere. A new tenant is created."""
    print_text(_import_operator_actions().create_key(tenant, **options))


@keys_group.command("list")
@_tenant
def list_keys(tenant: str) -> None:
    """List keys, without their secrets, as JSON Lines."""
    for key in _import_operator_actions().list_keys(tenant):
        print_json_line(key)


@keys_group.command("rotate")
@_tenant
@click.option(
    "--grace",
    type=float,
    default=_DEFAULT_GRACE_HOURS,
    show_default=True,
    help="Hours for which the old key is still valid.",
)
@_days
@refuse_former_option("--overlap", "--grace")
@refuse_former_option("--key", "the key's id alone: rotate KEY_ID")
@click.argument("key_id")
def rotate_key(tenant: str, grace: float, days: int | None, key_id: str) -> None:
    """Make a key's successor; it is shown once and stored nowhere.

    It has the user, the rights and the label of KEY_ID, which ends by itself after --grace; without
    --days it is valid for as long as KEY_ID was made for.
    """
    print_text(_import_operator_actions().rotate_key(tenant, key_id, grace_hours=grace, days=days))


@keys_group.command("revoke")
@_tenant
@refuse_former_option("--key", "the key's id alone: revoke KEY_ID")
@click.argument("key_id")
def revoke_key(tenant: str, key_id: str) -> None:
    """Revoke a key; it is refused within 60 seconds."""
    _import_operator_actions().revoke_key(tenant, key_id)
    print_text(f"revoked: {key_id}")


@operate_group.group("certificates")
def certificates_group() -> None:
    """Client certificates of a tenant."""


@certificates_group.command("create")
@_add_new_credential_options
@click.option("--issuer", help="Its authority's name; any authority if absent.")
@click.option("--pem", type=_file, help="A certificate file to read subject and issuer from.")
@click.option("--subject", help="As `openssl x509 -noout -subject -nameopt RFC2253` prints it.")
def create_certificate(tenant: str, subject: str | None, pem: Path | None, **options: Any) -> None:
    """Register a certificate's subject, which then authenticates. A new tenant is created."""
    if (subject is None) == (pem is None):
        raise click.UsageError("Give either --subject or --pem.")
    print_json_line(
        _import_operator_actions().create_certificate(tenant, subject=subject, pem=pem, **options)
    )


@certificates_group.command("list")
@_tenant
def list_client_certificates(tenant: str) -> None:
    """List subjects, as JSON Lines."""
    for certificate in _import_operator_actions().list_client_certificates(tenant):
        print_json_line(certificate)


@certificates_group.command("revoke")
@_tenant
@refuse_former_option("--certificate", "the certificate's id alone: revoke CERTIFICATE_ID")
@click.argument("certificate_id", type=click.UUID)
def revoke_certificate(tenant: str, certificate_id: UUID) -> None:
    """Revoke a subject; it is refused within 60 seconds."""
    _import_operator_actions().revoke_certificate(tenant, certificate_id)
    print_text(f"revoked: {certificate_id}")


@operate_group.command("refold")
@_tenant
@click.option("--scope", type=click.UUID, help="Only the scope with this id.")
def refold_chains(tenant: str, scope: UUID | None) -> None:
    """Delete a tenant's chains; the next sweep folds them again from the log."""
    scope_count = _import_operator_actions().refold_chains(tenant, scope)
    print_text(f"to be folded again by the next sweep: {scope_count} scopes")


@operate_group.command("spaces")
@click.option("--tenant", help="Only this tenant; by default all.")
def list_spaces(tenant: str | None) -> None:
    """Show the embedding space of each tenant, as JSON Lines.

    Which one it reads, how far that of the configured model is filled, what it cost and costs, and
    how the answers in both compare.
    """
    for space in _import_operator_actions().list_spaces(tenant):
        print_json_line(space)


@operate_group.command("receipt")
@click.argument("file", type=_file)
@click.option("--public-key", help="Of the deployment, in hex; by default from its own secret.")
def check_erasure_receipt(file: Path, public_key: str | None) -> int:
    """Check the receipt of an erasure: FILE has the answer of GET /api/v1/erasures/{id}."""
    is_valid, sentence = _import_operator_actions().check_receipt(file, public_key)
    print_text(sentence)
    return 0 if is_valid else 1


@operate_group.command("migrate")
def migrate_schema() -> None:
    """Bring the schema to this release, as its owner."""
    applied_files = _import_operator_actions().migrate()
    print_text(f"applied: {', '.join(applied_files) or 'nothing, the schema is up to date'}")


COMMANDS = (operate_group,)
