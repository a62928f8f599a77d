"""What a person said in a text that stands as theirs: agents' programs write such texts, too, and
add to what a person wrote. Hooks import this: it imports little."""

import re

_PROGRAM_TEXTS = (
    *("<command-", "<local-command-", "<bash-", "<system-reminder>", "<task-notification>"),
    *("[Request interrupted", "Caveat: The messages below were generated"),
    *("<environment_context>", "<user_instructions>", "<turn_aborted>", "<user_shell_command>"),
    *("<skill>", "<hook_prompt", "<subagent_notification>", "# AGENTS.md instructions"),
)
"""How texts begin that are the program's own."""
_ADDED_BEFORE = re.compile(
    r"(?:\s*<(system-reminder|ide_opened_file|ide_selection)>.*?</\1>)+\s*", re.DOTALL
)
"""What a program sets before what a person wrote."""
_COMMAND = re.compile(
    r"<command-message>[^<]*</command-message>\s*<command-name>([^<]*)</command-name>\s*"
    r"<command-args>(.*)</command-args>\s*",
    re.DOTALL,
)
"""A command that the agent answers, with its arguments. One for the program has another order."""
_PASTE = re.compile(r'<pasted_content id="(\w+)">\n')


def take_spoken_text(text: str) -> str:
    """What the person said, without what the program added; empty where they said nothing."""
    if added := _ADDED_BEFORE.match(text):
        text = text[added.end() :]
    if (command := _COMMAND.fullmatch(text)) and (arguments := command[2].strip()):
        text = f"{command[1]} {arguments}"
    return "" if text.lstrip().startswith(_PROGRAM_TEXTS) else _unwrap_pastes(text)


def _unwrap_pastes(text: str) -> str:
    """A text without the marks around what was pasted into it."""
    pieces: list[str] = []
    start = 0
    while paste := _PASTE.search(text, start):
        mark = f'\n</pasted_content id="{paste[1]}">'
        end = text.find(mark, paste.end() - 1)
        if end < 0:
            break
        pieces += [text[start : paste.start()], text[paste.end() : end]]
        start = end + len(mark)
    return "".join([*pieces, text[start:]])
