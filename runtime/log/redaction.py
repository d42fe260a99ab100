"""What looks like a secret, by its key or by itself, so that it is neither recorded nor compared. Pure.

By key: the words of it, however they are spelled (`hf_token`, `HF_TOKEN`, `hfToken`, `hf-token`). By value: the shapes
in which providers hand out keys, and credentials inside of URLs and connection strings.
"""

from __future__ import annotations

import functools
import re

REDACTED = "<redacted>"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A key is a secret's name if its last word is one of these, in the singular or the plural,
_NAMES = _words(
    """
    secret token password passwd passphrase passcode pwd pw pass credential cred authorization auth bearer dsn jwt
    cookie pat sas pin otp hmac connstr keytab kubeconfig pem
    """
)
# or ends in one of these, with whatever is written in front of it without a gap,
_ENDINGS = (
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "accountkey",
    "authkey",
    "connectionstring",
)
# or if it is a key of one of these kinds.
_OF_DOORS = _words(
    "api access secret private account auth signing encryption ssh gpg master shared storage license session"
)
_PAIRS = frozenset({("connection", "string"), ("conn", "string"), ("conn", "str"), ("webhook", "url")})
# The tokens of a language model are no secrets, nor is what they are called; several are, if they open something.
_OF_TEXT = _words("pad eos bos unk cls sep mask image audio video special stop start end prompt max min num")
_OPENING = _words("api access auth refresh bearer hf id user service session")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_VALUES = re.compile(
    r"""
      (?<=://)[^\s/?\#]+(?=@)                                  # https://user:password@host, https://token@host
    | \b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b                         # AWS
    | \bAIza[\w-]{35} | \bya29\.[\w-]{20,} | \bGOCSPX-[\w-]{20,}     # Google
    | \bgh[pousr]_\w{30,} | \bgithub_pat_\w{22,} | \bglpat-[\w-]{20,}
    | \bhf_[A-Za-z0-9]{30,} | \bsk-[\w-]{20,} | \bsk_(?:live|test)_\w{16,} | \br8_\w{30,}
    | \bxox[abeoprs]-[\w-]{10,} | \bhooks\.slack\.com/services/[\w/]+
    | \bnpm_\w{36} | \bpypi-[\w-]{50,} | \bdop_v1_\w{40,} | \bdapi[0-9a-f]{32} | \bSG\.[\w-]{20,}\.[\w-]{20,}
    | \beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+                        # JSON web token
    | -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----.*?(?:-----END[^-]*-----|\Z)
    | (?<=Bearer[ ])[\w.~+/=-]{8,} | (?<=Basic[ ])[\w+/=]{8,}
    | (?<=AccountKey=)[^;\s]+ | (?<=SharedAccessSignature=)[^;\s]+
    | (?i:(?<=password=)|(?<=passwd=)|(?<=pwd=)|(?<=token=)|(?<=api_key=)|(?<=apikey=)|(?<=secret=)|(?<=signature=)
         |(?<=[?&]sig=)|(?<=[?&]key=)|(?<=access_key=)|(?<=secret_key=))[^&;\s"']+
    """,
    re.VERBOSE | re.DOTALL,
)


@functools.lru_cache(maxsize=1024)
def secret_key(key: str) -> bool:
    """Whether what is called so is a secret, and all that is nested in it."""
    words = [word.lower() for word in _WORD.findall(key)]
    while words and words[-1].isdigit():
        words.pop()
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    singular = last.removesuffix("s") if len(last) > 4 and not last.endswith("ss") else last
    if singular == "token" and (before in _OF_TEXT or (last == "tokens" and before not in _OPENING)):
        return False
    if singular == "key" or last == "keys":
        return before in _OF_DOORS
    return singular in _NAMES or (before, singular) in _PAIRS or _joined(singular)


def _joined(word: str) -> bool:
    ending = next((each for each in _ENDINGS if word.endswith(each)), None)
    return ending is not None and word.removesuffix(ending) not in _OF_TEXT


def redacted(text: str) -> str:
    """`text` without what looks like a secret in it."""
    return _VALUES.sub(REDACTED, text)
