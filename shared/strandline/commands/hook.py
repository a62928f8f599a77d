"""`strandline hook` among the other commands: its help, and its options where the program's come
before it."""

from __future__ import annotations

import click

from strandline.adapters.coding_agents.hook import FLUSH, PLUGIN, run_hook
from strandline.adapters.coding_agents.hook_settings import OPTIONS


@click.command(
    "hook",
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nOptions, each with its variable of the environment:\n"
    + "\n".join(f"{name:<10} [{variable}] {text}" for name, (variable, text) in OPTIONS.items())
    + f"\n{FLUSH:<10} store what waits now, and print what became of messages"
    + f"\n{PLUGIN:<10} print the folder of the plugin for both agents",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run_agent_hook(context: click.Context, arguments: tuple[str, ...]) -> int:
    """Remember what is said to a coding agent, and tell it what is known.

    Claude Code and Codex call it as a hook: a JSON object on standard input says which. It ends
    with 0 whatever happens, and within a second or two also while the service is away.
    """
    parent = context.parent.params if context.parent else {}
    group_options = [f"--{name}={parent[name]}" for name in ("url", "key") if parent.get(name)]
    return run_hook([*group_options, *arguments])


COMMANDS = (run_agent_hook,)
