"""Secrets are found and marked, and nothing else is. The samples are put together here, so that no
scanner of repositories takes them for real ones."""

import random
import string
import sys
import time
from pathlib import Path

import pytest

from strandline.secret_scrubbing import RULES, scrub_secrets

HEX, BASE32 = "0123456789abcdef", string.ascii_uppercase + "234567"
WORD = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits


def draw(alphabet: str, length: int) -> str:
    """Signs by chance, the same in each run; a letter and a digit among them."""
    chance = random.Random(f"{alphabet}{length}")
    return "".join(chance.choice(alphabet) for _ in range(length - 2)) + "a7"


PEM = "\n".join([draw(WORD, 64)] * 6)
JWT = f"eyJ{draw(WORD, 30)}.eyJ{draw(WORD, 60)}.{draw(WORD, 43)}"
SAMPLES = {
    "private-key": f"-----BEGIN RSA PRIVATE KEY-----\n{PEM}\n-----END RSA PRIVATE KEY-----",
    "aws-key-id": "AKIA" + BASE32[3:19],
    "aws-secret-key": draw(WORD + "/+", 40),
    "aws-bedrock-key": "ABSK" + draw(WORD, 110),
    "anthropic-key": "sk-ant-" + "api03-" + draw(WORD, 93) + "AA",
    "openai-key": "sk-" + "proj-" + draw(WORD, 74),
    "github-token": "ghp_" + draw(WORD, 36),
    "gitlab-token": "glpat-" + draw(WORD, 20),
    "slack-token": "xoxb-" + "1234567890-" + draw(WORD, 24),
    "webhook-address": "T0A1B2C3D/B0A1B2C3D/" + draw(WORD, 24),
    "stripe-key": "sk_" + "live_" + draw(WORD, 24),
    "google-key": "AIza" + draw(WORD, 35),
    "google-oauth-secret": "GOCSPX-" + draw(WORD, 28),
    "npm-token": "npm_" + draw(WORD, 36),
    "pypi-token": "pypi-" + "AgEIcHlwaS5vcmc" + draw(WORD, 80),
    "rubygems-token": "rubygems_" + draw(HEX, 48),
    "sendgrid-key": "SG." + draw(WORD, 22) + "." + draw(WORD, 43),
    "twilio-key": "SK" + draw(HEX, 32),
    "mailgun-key": "key-" + draw(HEX, 32),
    "mailchimp-key": draw(HEX, 32) + "-us12",
    "brevo-key": "xkeysib-" + draw(HEX, 64) + "-" + draw(WORD, 16),
    "digitalocean-token": "dop_v1_" + draw(HEX, 64),
    "databricks-token": "dapi" + draw(HEX, 32),
    "huggingface-token": "hf_" + draw(string.ascii_letters, 34).replace("7", "x"),
    "shopify-token": "shpat_" + draw(HEX, 32),
    "square-token": "sq0" + "atp-" + draw(WORD, 22),
    "doppler-token": "dp.pt." + draw(WORD, 43),
    "vault-token": "hvs." + draw(WORD, 95),
    "terraform-token": draw(WORD, 14) + ".atlasv1." + draw(WORD, 67),
    "notion-token": "ntn_" + "1" * 11 + draw(WORD, 35),
    "linear-key": "lin_api_" + draw(WORD, 40),
    "planetscale-secret": "pscale_" + "tkn_" + draw(WORD, 43),
    "postman-key": "PMAK-" + draw(HEX, 24) + "-" + draw(HEX, 34),
    "newrelic-key": "NRAK-" + draw(UPPER, 27).upper(),
    "grafana-token": "glsa_" + draw(WORD, 41),
    "dynatrace-token": "dt0c01." + draw(WORD, 24) + "." + draw(WORD, 64),
    "pulumi-token": "pul-" + draw(HEX, 40),
    "atlassian-token": "ATATT3" + draw(WORD, 186),
    "age-key": "AGE-SECRET-KEY-1" + draw(UPPER, 58).upper(),
    "onepassword-token": "ops_eyJ" + draw(WORD, 250),
    "flyio-token": "fo1_" + draw(WORD, 43),
    "telegram-token": "123456789:AA" + draw(WORD, 33),
    "perplexity-key": "pplx-" + draw(WORD, 48),
    "groq-key": "gsk_" + draw(WORD, 52),
    "supabase-key": "sbp_" + draw(HEX, 40),
    "tailscale-key": "tskey-" + "auth-" + draw(WORD, 40),
    "azure-storage-key": draw(WORD, 86) + "==",
    "azure-client-secret": "a1B8Q~" + draw(WORD, 34),
    "strandline-key": "strandline_" + draw(WORD, 86),
    "json-web-token": JWT,
    "authorization-header": draw(WORD, 40),
    "password-in-address": "correct-horse-9",
    "password-in-parameters": "correct-horse-9",
    "assigned-secret": draw(WORD, 32),
}
FRAMES = {
    "aws-secret-key": 'aws_secret_access_key = "{}"',
    "webhook-address": "curl https://hooks.slack.com/services/{}",
    "azure-storage-key": "AccountName=a;AccountKey={};EndpointSuffix=b",
    "authorization-header": "curl -H 'Authorization: Bearer {}'",
    "password-in-address": "postgresql://app:{}@db.internal:5432/app",
    "password-in-parameters": "Server=db;Uid=app;Password={};Encrypt=yes",
    "assigned-secret": "MY_API_KEY={}",
}
"""What stands around a secret that is none by itself."""


def test_secret_scrubbing_has_sample_of_each_rule() -> None:
    assert set(SAMPLES) == {rule.name for rule in RULES} | {"private-key"}


@pytest.mark.parametrize("name", SAMPLES)
def test_secret_scrubbing_marks_and_counts(name: str) -> None:
    secret = SAMPLES[name]
    frame = FRAMES.get(name, "Take {} for it.")
    text = f"The first line.\n{frame.format(secret)}\nThe last line."
    result = scrub_secrets(text)
    assert result.text == f"The first line.\n{frame.format(f'[scrubbed: {name}]')}\nThe last line."
    assert result.counts == {name: 1}
    assert scrub_secrets(result.text) == (result.text, {})


def test_secret_scrubbing_finds_secrets_in_json() -> None:
    """As tools print them: with line breaks that are escaped."""
    key = SAMPLES["private-key"].replace("\n", "\\n")
    text = f'{{"private_key": "{key}", "token": "{SAMPLES["assigned-secret"]}", "name": "a"}}'
    result = scrub_secrets(text)
    assert result.counts == {"private-key": 1, "assigned-secret": 1}
    assert result.text == (
        '{"private_key": "[scrubbed: private-key]", "token": "[scrubbed: assigned-secret]", '
        '"name": "a"}'
    )


def test_secret_scrubbing_takes_private_key_without_end() -> None:
    cut = SAMPLES["private-key"].partition("-----END")[0]
    assert scrub_secrets(f"{cut}\nThen words.").text == "[scrubbed: private-key]\n\nThen words."
    both = f"{cut} and {SAMPLES['private-key']}"
    assert WORD[:20] not in scrub_secrets(both).text
    assert PEM[:64] not in scrub_secrets(both).text


@pytest.mark.parametrize(
    "text",
    [
        "password = os.environ['DATABASE_PASSWORD']",
        "postgresql://app:${PASSWORD}@db:5432/app and https://user:password@example.com",
        "The token is in the vault; the secret key is called DEPLOY_SIGNING_KEY_OF_STAGING.",
        "sha256 = 'be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037'",
        "commit 25893232d14a11bde6d4b1500f587f775c8ca6ac, image @sha256:" + "ab12" * 16,
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGb1 ann@example.com",
        "task-force-sk-learn, key-value-store, risk-adjusted-returns-of-the-portfolio-in-2026",
        "see https://github.com/a/b/blob/main/c.py#L10 at 10:30, ratio 3:1@2x",
        "tokens: 128000, max_tokens=4096, token_count_of_each_message: 1234567890",
        "self.client_secret = client_secret_of_environment_number_2",
    ],
)
def test_secret_scrubbing_leaves_ordinary_text(text: str) -> None:
    assert scrub_secrets(text) == (text, {})


def test_secret_scrubbing_leaves_ordinary_code_and_prose(repository: Path) -> None:
    """All of the standard library's modules and of this project's own code and documents."""
    library = sorted(Path(random.__file__).parent.glob("*.py"))
    own = [*(repository / "shared").rglob("*.py"), *(repository / "docs").rglob("*.md")]
    texts = {path: path.read_text("utf-8") for path in (*library, *own)}
    assert sum(map(len, texts.values())) > 5_000_000
    assert {str(path): n for path, t in texts.items() if (n := scrub_secrets(t).counts)} == {}


HOSTILE = {
    "first lines": "-----BEGIN PRIVATE KEY-----\n",
    "addresses": "http://a:",
    "long address": "https://" + "u" * 90 + ":" + "p" * 190 + " ",
    "web tokens": "eyJ",
    "web token parts": "eyJaaaaaaaaaaaa.",
    "names": "api_key=",
    "names and blanks": "password  ",
    "prefixes": "xoxb-SG.sk-ghp_key-",
    "lines of a key": "-----BEGIN RSA PRIVATE KEY-----" + (" " + "A" * 16) * 30,
    "one word": "a",
    "digits": "0123456789abcdef-us1 ",
    "own prefix": "strandline_",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_secret_scrubbing_is_linear_in_hostile_text(name: str) -> None:
    """A megabyte costs little more than four times a quarter of one; the bound is for machines that
    are busy. A pattern that backtracks takes minutes."""
    million = (HOSTILE[name] * 1_000_000)[:1_000_000]
    seconds: list[float] = []
    for size in (250_000, 1_000_000):
        start = time.process_time()
        scrub_secrets(million[:size])
        seconds.append(time.process_time() - start)
    assert seconds[1] < 8 * seconds[0] + 2.0
    assert "strandline.secret_scrubbing" in sys.modules
