"""A language model behind HTTP: what it is sent, and what becomes of whatever it answers."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from botocore.config import Config
from botocore.stub import Stubber as _Stubber

from strandline.aws import client_factory
from strandline.config import ServiceSettings
from strandline.errors import (
    InvalidModelAnswer,
    Misconfigured,
    ModelFormatUnsupported,
    ModelMisconfigured,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRefused,
    ModelTimeout,
    ModelUnavailable,
    StrandlineError,
)
from strandline.llm import openai_chat, parsing
from strandline.llm.bedrock import BedrockModel
from strandline.llm.factory import make_provider
from strandline.llm.openai_chat import OpenAiChatModel
from strandline.llm.parsing import UnusableOutput, parse_model_output
from strandline.llm.provider import ModelReply, ModelRequest
from strandline.llm.types import Entities, RunSummary, RunTopic, TopicContinuation
from tests.model_server import (
    ModelServer,
    Says,
    completion,
    drip,
    drip_headers,
    error,
    pour,
    serving,
    stay_silent,
)
from tests.support import KEY_SECRET

Stubber: Any = _Stubber  # botocore ships no types
SECRET, KEY = "grandmother's recipe", "sk-key-of-the-deployment"
REQUEST = ModelRequest(
    "topic",
    "Name the topic, as you name the topic.",
    SECRET,
    parsing.make_strict_schema(RunTopic),
    500,
)
SCHEMA, INSIDE, OBJECT, TEXT = (
    f"{way} max_tokens" for way in ("json_schema", "json_object_schema", "json_object", "text")
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        server.otherwise = lambda _: completion('{"topic": "tides"}')
        yield server


@pytest.fixture
def model(server: ModelServer) -> Iterator[OpenAiChatModel]:
    with closing(OpenAiChatModel(base_url=server.url, model="tiny", api_key=KEY)) as model:
        yield model


def settings(**options: Any) -> ServiceSettings:
    return ServiceSettings(database_url="", bucket="", key_secret=KEY_SECRET, **options)


def tell_usage(
    model: OpenAiChatModel,
    kind: type[StrandlineError],
    way: str = SCHEMA,
    *,
    sure: bool = True,
    seconds: float = 10,
) -> str:
    """The error's message, of which a log shows neither text nor key."""
    with pytest.raises(kind) as failure:
        model.ask(REQUEST, way, is_proven=sure, timeout=seconds)
    assert type(failure.value) is kind
    text = f"{failure.value!r} {failure.value.__cause__!r} {failure.value.details}"
    assert SECRET not in text
    assert KEY not in text
    return failure.value.message


# --- what is sent


def test_chat_model_gets_protocol_fields_only(server: ModelServer, model: OpenAiChatModel) -> None:
    assert model.ask(REQUEST, model.output_mode, is_proven=False, timeout=10) == ModelReply(
        '{"topic": "tides"}', 100, 20
    )
    fields = {"name": "topic", "schema": REQUEST.schema, "strict": True}
    assert server.requests == [
        {
            "model": "tiny",
            "messages": [
                {"role": "system", "content": REQUEST.system},
                {"role": "user", "content": SECRET},
            ],
            "response_format": {"type": "json_schema", "json_schema": fields},
            "max_tokens": 500,
        }
    ]
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("way", [INSIDE, OBJECT, TEXT])
def test_chat_model_gets_schema_in_prompt_if_unsupported(
    server: ModelServer, model: OpenAiChatModel, way: str
) -> None:
    model.ask(REQUEST, way, is_proven=True, timeout=10)
    assert json.dumps(REQUEST.schema) in server.requests[0]["messages"][0]["content"]
    assert server.ways() == [way.split()[0]]
    response_format = server.requests[0].get("response_format", {})
    assert response_format.get("schema") == (REQUEST.schema if way == INSIDE else None)


def test_chat_model_ignores_openai_variables(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_chat, "OPENAI_URL", server.url)
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID"):
        monkeypatch.setenv(f"OPENAI_{name}", f"somebody-elses-{name}")
    for name in ("OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "somebody-elses")
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "somebody-elses")
    for version in (None, "2024-10-21"):
        with closing(
            OpenAiChatModel(base_url=None, model="tiny", api_key=None, azure_version=version)
        ) as model:
            model.ask(REQUEST, model.output_mode, is_proven=False, timeout=10)
    assert len(server.headers) == 2
    assert "somebody-elses" not in str(server.headers)
    assert not {"openai-organization", "openai-project"} & set(server.headers[0])


def test_chat_model_azure_gets_its_own_request(server: ModelServer) -> None:
    model = make_provider(
        settings(
            llm_provider="azure",
            llm_base_url=server.url.removesuffix("/v1"),
            llm_model="our-deployment",
            llm_api_key=KEY,
            llm_api_version="2024-10-21",
        )
    )
    assert isinstance(model, OpenAiChatModel)
    assert model.name == "azure:our-deployment"
    model.ask(REQUEST, model.output_mode, is_proven=False, timeout=10)
    model.close()
    assert server.paths == [
        "/openai/deployments/our-deployment/chat/completions?api-version=2024-10-21"
    ]
    assert server.headers[0]["api-key"] == KEY
    assert "authorization" not in server.headers[0]
    assert server.requests[0]["max_completion_tokens"] == 500


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"llm_provider": "openai"}, ["MODEL"]),
        ({"llm_provider": "bedrock"}, ["MODEL"]),
        ({"llm_provider": "azure", "llm_model": "x"}, ["BASE_URL", "API_KEY", "API_VERSION"]),
    ],
)
def test_chat_model_names_missing_provider_settings(
    values: dict[str, Any], missing: list[str]
) -> None:
    with pytest.raises(Misconfigured) as failure:
        make_provider(settings(**values))
    assert all(f"STRANDLINE_LLM_{name}" in failure.value.message for name in missing)


def test_chat_model_is_off_by_default() -> None:
    assert make_provider(settings()) is None


# --- what comes back


@pytest.mark.parametrize("status", [302, 307, 408, 500, 503])
def test_chat_model_status_408_or_500_is_outage(
    server: ModelServer, model: OpenAiChatModel, status: int
) -> None:
    server.script = [
        Says({"error": {"message": SECRET + KEY}}, status, headers={"Location": "/v2"})
    ]
    assert f"HTTP {status}" in tell_usage(model, ModelUnavailable)
    assert len(server.requests) == 1, "retried, or carried elsewhere"


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("7", 7), ("0", 1), ("999999", 3600), ("Tue, 01 Dec 2026 16:00:00 GMT", 20), ("nan", 20)],
)
def test_chat_model_status_429_waits_as_told(
    server: ModelServer, model: OpenAiChatModel, retry_after: str, seconds: float
) -> None:
    server.script = [
        Says({"error": {"message": SECRET}}, 429, headers={"Retry-After": retry_after})
    ]
    with pytest.raises(ModelRateLimited) as failure:
        model.ask(REQUEST, SCHEMA, is_proven=True, timeout=10)
    assert failure.value.seconds_to_wait == seconds
    assert "HTTP 429" in failure.value.message
    assert "STRANDLINE_LLM_CALLS_PER_MINUTE" in failure.value.message
    assert SECRET not in f"{failure.value!r} {failure.value.__cause__!r}"
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "code"), [(402, "x"), (429, "insufficient_quota")])
def test_chat_model_account_without_credit_is_named(
    server: ModelServer, model: OpenAiChatModel, status: int, code: str
) -> None:
    server.script = [Says({"error": {"message": SECRET, "code": code}}, status)]
    assert "check its billing" in tell_usage(model, ModelMisconfigured)


@pytest.mark.parametrize(
    ("status", "setting"), [(401, "API_KEY"), (403, "API_KEY"), (404, "MODEL"), (404, "BASE_URL")]
)
def test_chat_model_status_401_or_404_names_wrong_settings(
    server: ModelServer, model: OpenAiChatModel, status: int, setting: str
) -> None:
    server.script = [error(status, f"Incorrect key {KEY}, asked about {SECRET}")]
    message = tell_usage(model, ModelMisconfigured)
    assert f"HTTP {status}" in message
    assert f"STRANDLINE_LLM_{setting}" in message
    assert not ModelMisconfigured.retryable


@pytest.mark.parametrize("status", [400, 413, 422])
def test_chat_model_status_400_is_refusal(
    server: ModelServer, model: OpenAiChatModel, status: int
) -> None:
    server.script = [error(status, f"content policy: {SECRET}")]
    message = tell_usage(model, ModelRequestRefused)
    assert f"HTTP {status}" in message
    assert "STRANDLINE_LLM_API_KEY" in message


@pytest.mark.parametrize(
    ("way", "sure", "message", "simpler"),
    [
        (SCHEMA, True, "response_format of type json_schema is not supported", INSIDE),
        (OBJECT, True, "Invalid parameter: 'response_format'", TEXT),
        (SCHEMA, False, "Bad Request", INSIDE),
        (INSIDE, True, "Unknown parameter: 'response_format.schema'", OBJECT),
        (SCHEMA, True, "use 'max_completion_tokens'", "json_schema no_limit"),
        (
            "json_schema max_completion_tokens",
            True,
            "Unrecognized request argument: max_completion_tokens",
            SCHEMA,
        ),
    ],
)
def test_chat_model_format_refusal_gives_simpler_format(
    server: ModelServer, model: OpenAiChatModel, way: str, sure: bool, message: str, simpler: str
) -> None:
    for status in (400, 422):
        server.script = [error(status, message)]
        with pytest.raises(ModelFormatUnsupported) as failure:
            model.ask(REQUEST, way, is_proven=sure, timeout=10)
        assert failure.value.simpler_format == simpler


def test_chat_model_format_error_500_is_format_refusal(
    server: ModelServer, model: OpenAiChatModel
) -> None:
    server.script = [error(500, "Input should be 'text' or 'json_object'"), error(500, "oops")]
    with pytest.raises(ModelFormatUnsupported):
        model.ask(REQUEST, SCHEMA, is_proven=True, timeout=10)
    tell_usage(model, ModelUnavailable, sure=False)


def test_chat_model_simplest_format_has_no_fallback(
    server: ModelServer, model: OpenAiChatModel
) -> None:
    server.script = [error(400, "response_format and schema")]
    assert "HTTP 400" in tell_usage(model, ModelRequestRefused, TEXT, sure=False)


@pytest.mark.parametrize(
    "says",
    [completion("", refusal="I will not"), completion("", finish_reason="stop", refusal="No.")],
)
def test_chat_model_refusal_is_recognised(
    server: ModelServer, model: OpenAiChatModel, says: Says
) -> None:
    server.script = [says]
    assert "refuses to answer" in tell_usage(model, ModelRefused)


@pytest.mark.parametrize(
    "body", [b"<html>Sign in</html>", b"", b'{"error": {"code": 429}}', b"[]", b'{"choices": []}']
)
def test_chat_model_rejects_unknown_answer(
    server: ModelServer, model: OpenAiChatModel, body: bytes
) -> None:
    server.script = [Says(body)]
    message = tell_usage(model, InvalidModelAnswer)
    assert "not a chat completion" in message
    assert "STRANDLINE_LLM_BASE_URL" in message


# The server goes on until the test lets it go, which it does after the error: the error itself
# shows that the client read no further.
@pytest.mark.parametrize("status", [200, 400, 500])
def test_chat_model_rejects_huge_answer(
    server: ModelServer, model: OpenAiChatModel, status: int
) -> None:
    server.script = [Says(b"", hold=pour(status))]
    assert "over 262144 bytes" in tell_usage(model, InvalidModelAnswer)


def test_chat_model_rejects_compressed_answer(server: ModelServer, model: OpenAiChatModel) -> None:
    server.script = [Says(b"\x1f\x8b", headers={"Content-Encoding": "gzip"})]
    assert "compressed" in tell_usage(model, InvalidModelAnswer)
    assert server.headers[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize("hold", [stay_silent, drip, drip_headers])
def test_chat_model_slow_answer_times_out(
    server: ModelServer, model: OpenAiChatModel, hold: Any
) -> None:
    server.script = [Says(b"", hold=hold)]
    started = time.monotonic()
    tell_usage(model, ModelTimeout, seconds=0.3)
    assert time.monotonic() - started < 3, "not once per wait"
    assert model.ask(REQUEST, SCHEMA, is_proven=True, timeout=10), (
        "the next has a connection of its own"
    )


def test_chat_model_slow_proxy_answer_times_out(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    server.script = [Says(b"", hold=drip_headers)]
    url = "http://elsewhere.invalid/v1"
    with closing(OpenAiChatModel(base_url=url, model="tiny", api_key=KEY)) as model:
        tell_usage(model, ModelTimeout, seconds=0.3)
    assert server.paths == [f"{url}/chat/completions"]


def test_chat_model_unreachable_is_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    with closing(OpenAiChatModel(base_url=url, model="tiny", api_key=KEY)) as model:
        assert tell_usage(model, ModelUnavailable) == (
            "The language model cannot be reached: check the address in STRANDLINE_LLM_BASE_URL, "
            "and that the model's server runs."
        )


def test_chat_model_answer_may_lack_token_counts(
    server: ModelServer, model: OpenAiChatModel
) -> None:
    server.script = [completion("{}", tokens=None)]
    assert model.ask(REQUEST, SCHEMA, is_proven=True, timeout=10) == ModelReply("{}", None, None)


# --- what an answer is worth


@pytest.mark.parametrize(
    "text",
    [
        '{"topic": "tides"}',
        ' {"topic": "  tides "} ',
        '```json\n{"topic": "tides"}\n```',
        '<think>{"topic": "no"} or so</think>Here: {"topic": "tides"}. Done.',
        '{"topic": "tides", "more": [1, {"x": null}]}',
    ],
)
def test_chat_model_answer_ignores_surrounding_text(text: str) -> None:
    assert parse_model_output(text, RunTopic, "") == RunTopic(topic="tides")


@pytest.mark.parametrize(
    "quotes", ["a </think> b", "</think>", '</think>{"topic": "no"}', "</think>{}"]
)
@pytest.mark.parametrize("before", ["", "<think>So?</think>"])
def test_chat_model_answer_may_quote_end_of_thinking(quotes: str, before: str) -> None:
    answer = json.dumps({"topic": quotes})
    assert parse_model_output(f"{before}{answer}", RunTopic, "") == RunTopic(topic=quotes)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not a JSON object"),
        ("tides", "not a JSON object"),
        ("}{", "not a JSON object"),
        ('{"topic": "ti', "not a JSON object"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "not a JSON object"),
        ("[1]", "the object"),
        ("{}", "topic: Field required"),
        ('{"topic": ""}', "topic: String should have at least 1"),
        ('{"topic": "   "}', "topic: String should have at least 1"),
        ('{"topic": ["tides"]}', "topic: Input should be a valid string"),
        (json.dumps({"topic": SECRET * 20}), "topic: String should have at most 200"),
        (r'{"topic": "ti\u0000des"}', "control characters"),
        (r'{"topic": "ti\u001b[2Jdes"}', "control characters"),
        (r'{"topic": "ti\u009b2Jdes"}', "control characters"),
        ('{"topic": "for user:mallory"}', "an id that is not in the data"),
        ('{"topic": "0199a6f0-0000-7000-8000-000000000001"}', "an id that is not in the data"),
    ],
)
def test_chat_model_answer_fault_is_told_unquoted(text: str, fault: str) -> None:
    with pytest.raises(UnusableOutput) as unfit:
        parse_model_output(text, RunTopic, "user:alice said something")
    assert fault in str(unfit.value)
    assert len(str(unfit.value)) <= 300
    assert SECRET not in str(unfit.value)


def test_chat_model_answer_may_have_no_topic() -> None:
    assert parse_model_output('{"topic": null}', RunTopic, "user:alice").topic is None


def test_chat_model_answer_may_name_shown_ids() -> None:
    assert parse_model_output('{"topic": "what User:Alice wants."}', RunTopic, "user:alice").topic


@pytest.mark.parametrize("importance", ["1.1", "-0.1", "NaN", "Infinity", "1e999", '"high"'])
def test_chat_model_answer_importance_is_between_0_and_1(importance: str) -> None:
    with pytest.raises(UnusableOutput):
        parse_model_output(f'{{"summary": "x", "importance": {importance}}}', RunSummary, "")


def test_chat_model_answer_drops_unmentioned_entities() -> None:
    names = ["Mara", "mara", "Nobody Inc", "new  york"]
    text = json.dumps({"entities": [{"name": name, "kind": "other"} for name in names]})
    output = parse_model_output(text, Entities, "Mara flies to New York.")
    assert [entity.name for entity in output.entities] == ["Mara", "new  york"]


@pytest.mark.parametrize("result", [TopicContinuation, RunSummary, RunTopic, Entities])
def test_chat_model_schemas_are_strict(result: Any) -> None:
    def check(node: Any) -> None:
        if isinstance(node, list):
            for one in node:  # pyright: ignore[reportUnknownVariableType]
                check(one)
        if isinstance(node, dict):
            if "properties" in node:
                assert node["additionalProperties"] is False
                assert node["required"] == list(node["properties"])  # pyright: ignore
            assert not {"minLength", "maxLength", "minimum", "maxItems", "default"} & set(node)  # pyright: ignore
            for one in node.values():  # pyright: ignore[reportUnknownVariableType]
                check(one)

    check(parsing.make_strict_schema(result))


# --- Bedrock, by the shapes of its service model: botocore checks both ways against them

CONVERSE_RESPONSE: dict[str, Any] = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "t1", "name": "topic", "input": {"topic": "tides"}}}
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 30, "outputTokens": 7, "totalTokens": 37},
    "metrics": {"latencyMs": 12},
}


@pytest.fixture
def bedrock(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[BedrockModel, Any]]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    client = client_factory.make_client("bedrock-runtime", Config())
    configs: list[Any] = []

    def make(config: Config) -> Any:
        configs.append(config)
        return client

    with Stubber(client) as stubber:
        yield BedrockModel("some.model-v1:0", make), stubber
        stubber.assert_no_pending_responses()
    assert [config.read_timeout for config in configs] == [3]
    assert [config.retries for config in configs] == [{"total_max_attempts": 1}]


def test_chat_model_bedrock_gets_schema_as_tool(
    bedrock: tuple[BedrockModel, Any],
) -> None:
    model, stubber = bedrock
    tool = {
        "name": "topic",
        "description": "Gives the answer.",
        "inputSchema": {"json": dict(REQUEST.schema)},
    }
    stubber.add_response(
        "converse",
        CONVERSE_RESPONSE,
        {
            "modelId": "some.model-v1:0",
            "system": [{"text": REQUEST.system}],
            "messages": [{"role": "user", "content": [{"text": SECRET}]}],
            "inferenceConfig": {"maxTokens": 500},
            "toolConfig": {
                "tools": [{"toolSpec": tool}],
                "toolChoice": {"tool": {"name": "topic"}},
            },
        },
    )
    reply = model.ask(REQUEST, model.output_mode, is_proven=False, timeout=3.7)
    assert reply == ModelReply('{"topic": "tides"}', 30, 7)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ThrottlingException", ModelRateLimited),
        ("AccessDeniedException", ModelMisconfigured),
        ("ResourceNotFoundException", ModelMisconfigured),
        ("Bad <code>", ModelUnavailable),
        ("ModelTimeoutException", ModelTimeout),
        ("ValidationException", ModelRequestRefused),
    ],
)
def test_chat_model_bedrock_errors_are_translated(
    bedrock: tuple[BedrockModel, Any], code: str, kind: type[StrandlineError]
) -> None:
    model, stubber = bedrock
    stubber.add_client_error("converse", code, f"about {SECRET}")
    with pytest.raises(kind) as failure:
        model.ask(REQUEST, model.output_mode, is_proven=False, timeout=3.7)
    assert type(failure.value) is kind
    assert SECRET not in f"{failure.value!r} {failure.value.__cause__!r}"
    assert "<code>" not in failure.value.message


def test_chat_model_bedrock_guardrail_is_refusal(bedrock: tuple[BedrockModel, Any]) -> None:
    model, stubber = bedrock
    stubber.add_response("converse", {**CONVERSE_RESPONSE, "stopReason": "guardrail_intervened"})
    with pytest.raises(ModelRefused):
        model.ask(REQUEST, model.output_mode, is_proven=False, timeout=3.7)
