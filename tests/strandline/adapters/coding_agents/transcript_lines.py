"""Transcripts of the shape that Claude Code 2.1 and Codex 0.171 write, line by line as they appear.
What was said is made up here; around it stand the lines of a real session's kinds that are no
messages: notes of the program, instructions, what hooks added, tools, thoughts, summaries."""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class ClaudeTranscript:
    """A session of Claude Code."""

    def __init__(self, path: Path, session_id: str | None = None) -> None:
        self.path, self.session_id = path, session_id or str(uuid.uuid4())
        self.said: list[str] = []
        """What is to be stored, in order."""
        self._parent: str | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def write(self, *lines: Mapping[str, Any]) -> None:
        """Append lines as the agent does."""
        with self.path.open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)

    def make_step(self, **fields: Any) -> dict[str, Any]:
        """A line that belongs to the conversation's tree."""
        step: dict[str, Any] = {
            "parentUuid": self._parent,
            "isSidechain": False,
            "uuid": str(uuid.uuid4()),
            "timestamp": "2026-11-29T23:01:12.628Z",
            "userType": "external",
            "cwd": "/home/ann/buoys",
            "sessionId": self.session_id,
            "version": "2.1.332",
            "gitBranch": "main",
            **fields,
        }
        self._parent = step["uuid"]
        return step

    def ask(self, text: str) -> None:
        """The person's prompt, and what stands around it."""
        self.said.append(text)
        message = {"role": "user", "content": text}
        self.write(
            {"type": "queue-operation", "operation": "enqueue", "content": text},
            self.make_step(type="user", message=message, promptSource="typed"),
            self.make_step(
                type="attachment",
                attachment={"type": "hook_additional_context", "content": ["<memory-1>old"]},
            ),
        )

    def interject(self, text: str) -> None:
        """What the person types while the agent is at work, and what else waits in that way."""
        self.said.append(text)
        human, peer = {"kind": "human"}, {"kind": "peer"}
        self.write(
            {"type": "queue-operation", "operation": "enqueue", "content": text},
            self._make_queued(text, commandMode="prompt", origin=human),
            self._make_queued("<task-notification>done", commandMode="task-notification"),
            self._make_queued("From another session", commandMode="prompt", origin=peer),
            self._make_queued("Go on", commandMode="prompt", origin=human, isMeta=True),
            {"type": "queue-operation", "operation": "remove"},
        )

    def ask_with_additions(self) -> None:
        """What the person wrote, with what the program added: marks around what was pasted, a
        reminder or an opened file before it, a command's name and arguments."""
        paste = (
            '<pasted_content id="f670">\nWind: 7 knots\n\nTide: low\n</pasted_content id="f670">'
        )
        reminder = "<system-reminder>\nThe date has changed.\n</system-reminder>"
        file_note = "<ide_opened_file>The user opened log.txt.</ide_opened_file>"
        command = (
            "<command-message>tide</command-message>\n<command-name>/tide</command-name>\n"
            "<command-args>Hooge on Friday</command-args>"
        )
        prompts: list[tuple[Any, str]] = [
            (
                f"The log:\n\n{paste}\n\nThat is all.",
                "The log:\n\nWind: 7 knots\n\nTide: low\n\nThat is all.",
            ),
            (f"{reminder}\n\nWhere is the buoy?", "Where is the buoy?"),
            ([{"type": "text", "text": part} for part in (file_note, "Read this.")], "Read this."),
            (command, "/tide Hooge on Friday"),
            (f"{reminder}", ""),
            (command.replace("Hooge on Friday", ""), ""),
            (
                '<pasted_content id="f670">\nan end is missing',
                '<pasted_content id="f670">\nan end is missing',
            ),
        ]
        for content, text in prompts:
            self.said += [text] if text else []
            message = {"role": "user", "content": content}
            self.write(self.make_step(type="user", message=message, turnOrigin="human"))
        self.write(
            self.make_step(
                type="user",
                message={"role": "user", "content": "Goal set: the keel is painted"},
                origin={"kind": "auto-continuation"},
            )
        )

    def _make_queued(self, prompt: str, **fields: Any) -> dict[str, Any]:
        attachment = {"type": "queued_command", "prompt": prompt, **fields}
        return self.make_step(type="attachment", attachment=attachment)

    def answer(self, text: str, tool_output: str = "42 tests passed") -> None:
        """The agent's answer, after a thought and a tool."""
        self.said.append(text)
        call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make"}}
        result = {"tool_use_id": "toolu_1", "type": "tool_result", "content": tool_output}
        self.write(
            self._make_answer({"type": "thinking", "thinking": "a thought", "signature": "x"}),
            self._make_answer(call),
            self.make_step(type="user", message={"role": "user", "content": [result]}),
            self._make_answer({"type": "text", "text": text}),
            {"type": "last-prompt", "lastPrompt": "p", "leafUuid": self._parent},
        )

    def _make_answer(self, block: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus"}
        return self.make_step(type="assistant", message={**fields, "content": [block], **more})

    def compact(self) -> None:
        """What `/compact` writes: a summary and notes that stand as the user's."""
        self._parent = None
        texts = (
            "<local-command-caveat>Caveat</local-command-caveat>",
            "<command-name>/compact</command-name>",
            "<local-command-stdout>Compacted</local-command-stdout>",
        )
        summary = {"role": "user", "content": "This session is being continued: a summary."}
        self.write(
            self.make_step(type="system", subtype="compact_boundary", content="compacted"),
            self.make_step(type="user", message=summary, isCompactSummary=True),
            *(
                self.make_step(type="user", message={"role": "user", "content": text})
                for text in texts
            ),
            self.make_step(
                type="user",
                message={"role": "user", "content": [{"type": "text", "text": "Continue."}]},
                isMeta=True,
            ),
            self._make_answer({"type": "text", "text": "No response."}, model="<synthetic>"),
        )

    def fork(self, path: Path) -> "ClaudeTranscript":
        """Another session that begins with all lines of this one, under its own id."""
        other = ClaudeTranscript(path)
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        other.write(*({**line, "sessionId": other.session_id} for line in lines))
        return other


class CodexTranscript:
    """A session of Codex."""

    def __init__(self, path: Path) -> None:
        self.path, self.session_id = path, str(uuid.uuid4())
        self.said: list[str] = []
        self._turn = ""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write("session_meta", {"id": self.session_id, "cwd": "/home/ann/buoys"})

    def _write(self, kind: str, payload: Mapping[str, Any]) -> None:
        self._write_lines((kind, payload))

    def _write_lines(self, *steps: tuple[str, Mapping[str, Any]]) -> None:
        lines = (
            {"timestamp": "2026-11-29T23:01:49.379Z", "type": kind, "payload": payload}
            for kind, payload in steps
        )
        with self.path.open("a") as file:
            file.write("".join(f"{json.dumps(line)}\n" for line in lines))

    def _write_message(self, role: str, texts: Sequence[str], kinds: Sequence[str]) -> None:
        self._write("response_item", self._make_message(role, texts, kinds))

    def _make_message(
        self, role: str, texts: Sequence[str], kinds: Sequence[str]
    ) -> Mapping[str, Any]:
        block = "output_text" if role == "assistant" else "input_text"
        return {
            "type": "message",
            "id": f"msg_{uuid.uuid4()}",
            "role": role,
            "content": [{"type": block, "text": text} for text in texts],
            "internal_chat_message_metadata_passthrough": {
                "turn_id": self._turn,
                "content_item_kinds": [*kinds],
            },
        }

    def ask(self, text: str) -> None:
        """The person's prompt, and what stands around it."""
        self.said.append(text)
        self._turn = str(uuid.uuid4())
        environment = "<environment_context><cwd>/home/ann/buoys</cwd></environment_context>"
        self._write("event_msg", {"type": "task_started", "turn_id": self._turn})
        self._write_message("developer", ["<skills_instructions>"], ["unknown"])
        self._write_message("user", [environment], ["environment_context"])
        self._write_message("user", [text], ["user.text"])
        self._write("event_msg", {"type": "item_completed", "item": {"type": "UserMessage"}})
        self._write_message("developer", ["<memory-1>old"], ["hooks.additional_context"])

    def answer(self, text: str, tool_output: str = "42 tests passed") -> None:
        """The agent's answer, after a thought and a tool."""
        self.said.append(text)
        call = {"name": "shell", "call_id": "call_1", "arguments": '{"command": "make"}'}
        self._write("response_item", {"type": "reasoning", "id": "rs_1", "summary": []})
        self._write("response_item", {"type": "function_call", **call})
        self._write(
            "response_item",
            {"type": "function_call_output", "call_id": "call_1", "output": tool_output},
        )
        self._write_message("assistant", [text], ["unknown"])
        self._write("event_msg", {"type": "task_complete", "turn_id": self._turn})

    def compact(self) -> None:
        """What a compaction writes: a turn of its own, in which the summary stands as an answer."""
        self._turn = str(uuid.uuid4())
        summary = "We spoke of buoys."
        message = f"Here is the summary produced by the other language model:\n{summary}"
        self._write_lines(
            ("event_msg", {"type": "task_started", "turn_id": self._turn}),
            ("response_item", self._make_message("assistant", [summary], ["unknown"])),
            ("token_usage_record", {"turn_id": self._turn}),
            ("event_msg", {"type": "token_count"}),
            ("compacted", {"message": message, "replacement_history": []}),
            ("event_msg", {"type": "task_complete", "turn_id": self._turn}),
        )
