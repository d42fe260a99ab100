"""No spelling of a secret reaches the run log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shaketable.runtime.log.compatibility import check_reuse, differences, recordable
from shaketable.runtime.log.redaction import REDACTED, redacted, secret_key

KEYS = """
token hf_token HF_TOKEN hfToken HfToken HFToken hf-token hftoken wandb_token GITHUB_TOKEN githubToken gitlab.token
access_token accessToken ACCESS_TOKEN access_tokens refresh_token refreshToken id_token idToken bearer bearer_token
api_token apiToken API_TOKENS auth_token authToken session_token slack_token slackToken bot_token oauth_token
password PASSWORD Password db_password dbPassword DB_PASSWORD db-password userPassword passwords passwd DB_PASSWD
passphrase sshPassphrase pwd db_pwd dbPwd pw smtp_pw smtp_pass SMTP_PASS passcode dbpassword mysqlpassword
secret SECRET client_secret clientSecret CLIENT_SECRET secrets app_secret appSecret webhook_secret jwt_secret
api_key apiKey API_KEY APIKey apikey openai_api_key OPENAI_API_KEY openaiApiKey wandb-api-key wandbapikey api_keys
access_key accessKey secret_key secretKey SECRET_KEY secret_access_key AWS_SECRET_ACCESS_KEY awsSecretAccessKey
private_key privateKey PRIVATE_KEY ssh_key sshKey account_key accountKey storage_key encryption_key encryptionKey
signing_key master_key shared_key auth AUTH basic_auth basicAuth authorization Authorization proxy_authorization
credential credentials Credentials aws_credentials gcpCredentials CREDENTIALS creds cred dsn DSN sentry_dsn sentryDsn
connection_string connectionString conn_str jwt cookie session_cookie pat github_pat sas otp token2 password_1
""".split()  # noqa: SIM905
NO_SECRETS = """
tokenizer max_tokens maxTokens num_tokens tokens pad_token eos_token bosToken pad_token_id image_token author authors
key keys primary_key sort_key key_size monkey bypass compass class_weights loss passes mass batch_size secretary
authenticated path password_file_exists cookie_cutter_dir hidden_size lr model data_key_column dsn_timeout_s
""".split()  # noqa: SIM905
VALUES = [
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "AIza" + "x" * 35,
    "ya29." + "x" * 30,
    "ghp_" + "x" * 36,
    "gho_" + "x" * 36,
    "github_pat_" + "x" * 30,
    "glpat-" + "x" * 20,
    "hf_" + "x" * 34,
    "sk-" + "x" * 40,
    "sk-proj-" + "x" * 40,
    "sk-ant-" + "x" * 40,
    "sk_live_" + "x" * 24,
    "xoxb-" + "1" * 12,
    "npm_" + "x" * 36,
    "dapi" + "0" * 32,
    "SG." + "x" * 22 + "." + "x" * 43,
    "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nHUNTER2\n-----END OPENSSH PRIVATE KEY-----",
]
INSIDE = [
    ("postgres://me:HUNTER2@db/x", "postgres://<redacted>@db/x"),
    ("mysql://me:p@HUNTER2@db/x", "mysql://<redacted>@db/x"),
    ("https://HUNTER2@github.com/me/it", "https://<redacted>@github.com/me/it"),
    ("redis://:HUNTER2@cache:6379/0", "redis://<redacted>@cache:6379/0"),
    ("https://HUNTER2@o1.ingest.sentry.io/2", "https://<redacted>@o1.ingest.sentry.io/2"),
    ("host=db password=HUNTER2 user=me", "host=db password=<redacted> user=me"),
    ("Server=db;Pwd=HUNTER2;Database=x", "Server=db;Pwd=<redacted>;Database=x"),
    ("AccountName=a;AccountKey=HUNTER2==;x", "AccountName=a;AccountKey=<redacted>;x"),
    ("https://blob/x?sv=1&sig=HUNTER2&se=2", "https://blob/x?sv=1&sig=<redacted>&se=2"),
    ("https://x/y?token=HUNTER2", "https://x/y?token=<redacted>"),
    ("https://x/y?X-Amz-Signature=HUNTER2", "https://x/y?X-Amz-Signature=<redacted>"),
    ("Authorization: Bearer HUNTER2.abc", "Authorization: Bearer <redacted>"),
    ("curl -H 'Authorization: Basic HUNTER2='", "curl -H 'Authorization: Basic <redacted>'"),
]


def test_there_are_a_hundred_spellings() -> None:
    assert len(set(KEYS)) >= 100


@pytest.mark.parametrize("key", KEYS)
def test_the_value_under_a_secret_s_name_is_not_recorded_at_any_depth(key: str) -> None:
    nested = {key: "HUNTER2", "a": [{key: {"user": "HUNTER2", "more": ["HUNTER2", {"pin": 1234}]}}]}
    stored = json.dumps(recordable({"train_loop_config": nested}))
    assert "HUNTER2" not in stored and "1234" not in stored


@pytest.mark.parametrize("key", NO_SECRETS)
def test_what_only_sounds_like_a_secret_is_recorded_and_compared(key: str) -> None:
    assert not secret_key(key)
    assert recordable({"c": {key: "value"}}) == {"c": {key: "value"}}


@pytest.mark.parametrize("value", VALUES)
def test_what_looks_like_a_secret_is_not_recorded_whatever_it_is_called(value: str) -> None:
    assert redacted(value) == REDACTED
    assert recordable({"c": {"note": f"use {value} here"}}) == {"c": {"note": f"use {REDACTED} here"}}


@pytest.mark.parametrize(("text", "left"), INSIDE)
def test_a_secret_inside_of_a_text_is_cut_out(text: str, left: str) -> None:
    assert recordable({"c": {"it": text}}) == {"c": {"it": left}}


@pytest.mark.parametrize(
    "text", ["s3://bucket/path", "me@host.org", "https://x/y?page=2#a@b", "git@github.com:a/b", "task-force", "skip-1"]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


def test_numbers_and_switches_under_a_secret_s_own_name_are_none() -> None:
    plain = {"max_token": 5, "use_auth": True, "token": None}
    assert recordable(plain) == plain


def test_a_run_of_before_that_recorded_what_is_a_secret_now_goes_on() -> None:
    before: dict[str, Any] = {"train_loop_config": {"hfToken": "hunter2", "db": "https://hunter2@x/y", "lr": 0.1}}
    after = recordable(before)
    assert differences(before, after) == {}
    assert check_reuse("run", before, after, "error") == []
    assert differences(before, {"train_loop_config": {**after["train_loop_config"], "lr": 0.2}}) == {
        "train_loop_config.lr": (0.1, 0.2)
    }
