"""The program `strandline`. A hook of a coding agent runs without the imports of all other
commands: the agent waits for it at every prompt."""

import os
import sys


def run_and_exit() -> None:
    """Run one command."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & {*sys.argv[2:]}:
        from strandline.adapters.coding_agents.hook import run_hook

        code = run_hook(sys.argv[2:])
        sys.stdout.flush()
        os._exit(code)  # the interpreter takes its time to take itself apart
    from strandline.commands import main

    main.run_and_exit()


if __name__ == "__main__":
    run_and_exit()
