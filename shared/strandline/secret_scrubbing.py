"""Finds secrets in a text and replaces them by a mark: keys of APIs, tokens, private keys,
passwords in addresses. Nothing else is private here: names, numbers and addresses of people stay.

Which prefixes and alphabets a provider's keys have are facts, collected from the rules of gitleaks
of July 2026 (github.com/gitleaks/gitleaks, MIT) and from providers' own pages. Every pattern reads
a text in time that grows with its length alone, and is compiled when a text first holds one of its
words.
"""

import re
from collections.abc import Callable
from math import log2
from typing import NamedTuple

_MARK = "[scrubbed: {}]"
_MAX_KEY_CHARS = 32_768
"""Of a private key, from its first line to its last."""
_MIN_ENTROPY = 3.2
"""Bits a character: words of a language have less, random letters and digits more."""


class ScrubbedText(NamedTuple):
    """A text without secrets."""

    text: str
    counts: dict[str, int]
    """How many secrets of each rule were replaced."""


class SecretRule(NamedTuple):
    """How secrets of one kind look."""

    name: str
    words: tuple[str, ...]
    """A text without any of them holds none of these secrets."""
    pattern: str
    """Its group `secret` is replaced; without one, all of the match."""
    is_secret: Callable[[str], bool] | None = None
    """Whether what the pattern finds is a secret; None: it always is."""


def _measure_entropy(text: str) -> float:
    """Bits a character."""
    shares = [text.count(sign) / len(text) for sign in set(text)]
    return -sum(share * log2(share) for share in shares)


def _looks_random(value: str) -> bool:
    """Whether a value is made of letters and digits without order."""
    has_digit = any(sign.isdigit() for sign in value)
    has_letter = any(sign.isalpha() for sign in value)
    return has_digit and has_letter and _measure_entropy(value) >= _MIN_ENTROPY


def _is_no_identifier(value: str) -> bool:
    """Whether a value is random and not the name of a variable: words with a number at the end."""
    parts = re.split(r"[-_/+=~]+", value)
    return _looks_random(value) and any(
        len(part) >= 8 and not part.isalpha() and not part.isdigit() for part in parts
    )


_PLACEHOLDER = (
    r"(?i:[$%{<\[*.]|x{3,}|pass(word|wd)?$|pwd$|secret$|token$|user(name)?$"
    r"|your|my[-_]|example|change)"
)


def _is_no_placeholder(value: str) -> bool:
    """Whether a password is one, and not the name of one as documents have it."""
    return re.match(_PLACEHOLDER, value) is None


_HEX, _WORD, _TOKEN = "[0-9a-f]", "[0-9A-Za-z]", r"[\w-]"
_ASSIGN = r"""["']?\s{0,3}(?::=|=>|=|:)\s{0,3}"""
RULES: tuple[SecretRule, ...] = (
    SecretRule(
        "aws-key-id",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    ),
    SecretRule(
        "aws-secret-key",
        ("ecret", "ECRET"),
        rf"(?i:aws.?secret(?:.?access)?.?key|secret.?access.?key){_ASSIGN}[\"'`]?"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    SecretRule("aws-bedrock-key", ("ABSK",), r"\bABSK[A-Za-z0-9+/]{60,269}={0,2}"),
    SecretRule("anthropic-key", ("sk-ant-",), rf"\bsk-ant-{_TOKEN}{{20,200}}"),
    SecretRule(
        "openai-key",
        ("sk-",),
        rf"\bsk-(?:(?:proj|svcacct|admin|or-v1)-{_TOKEN}{{20,200}}|{_WORD}{{32,64}}\b)",
    ),
    SecretRule(
        "github-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        rf"\b(?:gh[pousr]_{_WORD}{{36,255}}|github_pat_\w{{50,255}})",
    ),
    SecretRule(
        "gitlab-token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-", "gloas-", "glagent-"),
        r"\bgl(?:pat|dt|rt|ptt|cbt|soat|oas|agent)-[\w.-]{20,300}",
    ),
    SecretRule(
        "slack-token",
        ("xox", "xapp-"),
        rf"\b(?:xox[abeoprs]|xapp)[-.]{_TOKEN}{{10,250}}",
        _looks_random,
    ),
    SecretRule(
        "webhook-address",
        ("hooks.slack.com/", "/api/webhooks/", "webhook.office.com/"),
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|/api/webhooks/\d{5,25}|"
        r"webhook\.office\.com/webhookb2)/(?P<secret>[\w/@+-]{20,200})",
    ),
    SecretRule(
        "stripe-key",
        ("sk_live", "sk_test", "rk_live", "rk_test", "sk_prod", "rk_prod", "whsec_"),
        rf"\b(?:[rs]k_(?:live|test|prod)_{_WORD}{{10,99}}|whsec_[A-Za-z0-9+/=]{{24,99}})",
    ),
    SecretRule("google-key", ("AIza",), rf"\bAIza{_TOKEN}{{35}}"),
    SecretRule(
        "google-oauth-secret",
        ("GOCSPX-", "ya29."),
        rf"\b(?:GOCSPX-{_TOKEN}{{28}}|ya29\.{_TOKEN}{{20,300}})",
    ),
    SecretRule("npm-token", ("npm_",), rf"\bnpm_{_WORD}{{36}}\b"),
    SecretRule("pypi-token", ("pypi-AgE",), rf"\bpypi-AgE{_TOKEN}{{50,1000}}"),
    SecretRule("rubygems-token", ("rubygems_",), rf"\brubygems_{_HEX}{{48}}\b"),
    SecretRule("sendgrid-key", ("SG.",), rf"\bSG\.{_TOKEN}{{16,32}}\.{_TOKEN}{{32,64}}"),
    SecretRule("twilio-key", ("SK",), rf"\bSK{_HEX}{{32}}\b"),
    SecretRule("mailgun-key", ("key-",), rf"\bkey-{_HEX}{{32}}\b"),
    SecretRule("mailchimp-key", ("-us",), rf"\b{_HEX}{{32}}-us\d{{1,2}}\b"),
    SecretRule("brevo-key", ("xkeysib-",), rf"\bxkeysib-{_HEX}{{64}}-{_WORD}{{16}}"),
    SecretRule(
        "digitalocean-token", ("doo_v1_", "dop_v1_", "dor_v1_"), rf"\bdo[opr]_v1_{_HEX}{{64}}\b"
    ),
    SecretRule("databricks-token", ("dapi",), rf"\bdapi{_HEX}{{32}}(?:-\d)?\b"),
    SecretRule("huggingface-token", ("hf_",), r"\bhf_[A-Za-z]{34}\b"),
    SecretRule(
        "shopify-token",
        ("shpat_", "shpca_", "shppa_", "shpss_"),
        r"\bshp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}\b",
    ),
    SecretRule("square-token", ("sq0",), rf"\bsq0[a-z]{{3}}-{_TOKEN}{{22,60}}"),
    SecretRule("doppler-token", ("dp.",), r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,80}"),
    SecretRule("vault-token", ("hvs.", "hvb."), rf"\bhv[bs]\.{_TOKEN}{{24,300}}"),
    SecretRule("terraform-token", (".atlasv1.",), rf"\b{_WORD}{{14}}\.atlasv1\.[\w=-]{{60,70}}"),
    SecretRule("notion-token", ("ntn_",), rf"\bntn_\d{{11}}{_WORD}{{35}}\b"),
    SecretRule("linear-key", ("lin_api_", "lin_oauth_"), rf"\blin_(?:api|oauth)_{_WORD}{{40,64}}"),
    SecretRule(
        "planetscale-secret",
        ("pscale_",),
        r"\bpscale_(?:tkn|pw|oauth)_[\w=.-]{32,64}",
    ),
    SecretRule("postman-key", ("PMAK-",), rf"\bPMAK-{_HEX}{{24}}-{_HEX}{{34}}\b"),
    SecretRule("newrelic-key", ("NRAK-", "NRII-"), r"\b(?:NRAK-[A-Z0-9]{27}|NRII-[\w-]{32})"),
    SecretRule("grafana-token", ("glc_", "glsa_"), r"\b(?:glc|glsa)_[\w+/=]{32,400}"),
    SecretRule("dynatrace-token", ("dt0",), rf"\bdt0[a-z]\d{{2}}\.{_WORD}{{8,24}}\.{_WORD}{{64}}"),
    SecretRule("pulumi-token", ("pul-",), rf"\bpul-{_HEX}{{40}}\b"),
    SecretRule("atlassian-token", ("ATATT3",), r"\bATATT3[\w=-]{100,250}"),
    SecretRule("age-key", ("AGE-SECRET-KEY-1",), r"\bAGE-SECRET-KEY-1[A-Z0-9]{58}"),
    SecretRule("onepassword-token", ("ops_eyJ",), r"\bops_eyJ[A-Za-z0-9+/]{100,}={0,3}"),
    SecretRule("flyio-token", ("fo1_", "fm2_"), r"\b(?:fo1_[\w-]{43}|fm2_[\w+/=]{60,})"),
    SecretRule("telegram-token", (":AA",), rf"\b\d{{8,10}}:AA{_TOKEN}{{33}}(?![\w-])"),
    SecretRule("perplexity-key", ("pplx-",), rf"\bpplx-{_WORD}{{48}}\b"),
    SecretRule("groq-key", ("gsk_",), rf"\bgsk_{_WORD}{{48,56}}\b"),
    SecretRule(
        "supabase-key", ("sbp_", "sb_secret_"), rf"\b(?:sbp_{_HEX}{{40}}|sb_secret_[\w-]{{20,60}})"
    ),
    SecretRule("tailscale-key", ("tskey-",), rf"\btskey-[a-z]{{2,10}}-{_TOKEN}{{16,80}}"),
    SecretRule(
        "azure-storage-key",
        ("AccountKey=", "SharedAccessKey="),
        r"(?:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{40,88}={0,2})",
    ),
    SecretRule(
        "azure-client-secret", ("Q~",), r"(?<![\w~.-])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~-])"
    ),
    SecretRule("strandline-key", ("strandline_",), rf"\bstrandline_{_TOKEN}{{40,200}}"),
    SecretRule(
        "json-web-token",
        ("eyJ",),
        rf"\beyJ{_TOKEN}{{8,8000}}\.eyJ{_TOKEN}{{8,8000}}\.{_TOKEN}{{10,2000}}",
    ),
    SecretRule(
        "authorization-header",
        ("uthorization", "UTHORIZATION"),
        r"(?i:authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?i:bearer|basic|token)\s{1,3}"
        r"(?P<secret>[\w.~+/=-]{16,2000})",
        _looks_random,
    ),
    SecretRule(
        "password-in-address",
        ("://",),
        r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/:@'\"`<>]{0,100}:"
        r"(?P<secret>[^\s/@'\"`<>]{1,200})@(?=[\w.\[-])",
        _is_no_placeholder,
    ),
    SecretRule(
        "password-in-parameters",
        ("assword=", "wd=", "ASSWORD=", "WD="),
        r"(?i:\bpassword|\bpwd)=(?P<secret>[^\s;&'\"`<>]{6,200})(?=[;&])",
        _is_no_placeholder,
    ),
    SecretRule(
        "assigned-secret",
        ("key", "KEY", "Key", "oken", "OKEN", "ecret", "ECRET", "assw", "ASSW", "redential"),
        r"(?i:api.?key|access.?key|secret.?key|client.?secret|auth.?token|access.?token|secret|"
        rf"token|passw(?:or)?d|credential)s?(?![A-Za-z])\w{{0,20}}{_ASSIGN}[\"'`]?"
        r"(?P<secret>[A-Za-z0-9_+/=~-]{20,200})(?=[\"'`\s;,)}]|\\n|$)",
        _is_no_identifier,
    ),
)
"""The rules in the order in which they are applied; a text can match several."""

_PEM_HEADER = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_LINES = r"(?:(?:\s|\\[nr])+[A-Za-z0-9+/=]{16,})*"
"""What a key that is cut off still has."""


def scrub_secrets(text: str) -> ScrubbedText:
    """Replace each secret of a text by a mark that names its rule. A text without secrets is given
    back as it is, and so are marks."""
    counts: dict[str, int] = {}
    if "PRIVATE KEY" in text:
        text = _scrub_private_keys(text, counts)
    for rule in RULES:
        if any(word in text for word in rule.words):
            text = _apply_rule(rule, text, counts)
    return ScrubbedText(text, counts)


def _apply_rule(rule: SecretRule, text: str, counts: dict[str, int]) -> str:
    group = "secret" if "(?P<secret>" in rule.pattern else 0

    def replace(match: re.Match[str]) -> str:
        if rule.is_secret is not None and not rule.is_secret(match[group]):
            return match[0]
        counts[rule.name] = counts.get(rule.name, 0) + 1
        start, end = (place - match.start() for place in match.span(group))
        return f"{match[0][:start]}{_MARK.format(rule.name)}{match[0][end:]}"

    return re.sub(rule.pattern, replace, text)


def _scrub_private_keys(text: str, counts: dict[str, int]) -> str:
    """Without keys in PEM, whole ones and ones that are cut off. Each part of the text is read
    once, however many first lines it has."""
    find_end, find_lines = re.compile(_PEM_END), re.compile(_PEM_LINES)
    pieces: list[str] = []
    copied_end = 0
    last_line: re.Match[str] | None = None
    has_last_line = True
    for header in re.finditer(_PEM_HEADER, text):
        if header.start() < copied_end:
            continue
        if has_last_line and (last_line is None or last_line.start() < header.end()):
            last_line = find_end.search(text, header.end())
            has_last_line = last_line is not None
        end = last_line.end() if last_line else len(text)
        if not has_last_line or end - header.start() > _MAX_KEY_CHARS:
            lines = find_lines.match(text, header.end())
            end = lines.end() if lines else header.end()
        pieces += [text[copied_end : header.start()], _MARK.format("private-key")]
        counts["private-key"] = counts.get("private-key", 0) + 1
        copied_end = end
    return "".join([*pieces, text[copied_end:]])
