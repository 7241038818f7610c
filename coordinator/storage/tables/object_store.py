"""Tables named by a URL: timeouts, and errors in one line.

What delta-rs says of a failure is a chain of errors on ten lines, with the answer's whole body, in
which stores repeat access keys and signatures. Here it becomes one line without any of that.
"""

from __future__ import annotations

import errno
import os
import re
from urllib.parse import SplitResult, unquote, urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from assignors import SpecError
from coordinator.config import ConfigError, StoreConfig, is_endpoint
from coordinator.error_text import DECORATION
from coordinator.storage.tables.files import StoreRefusedError

LOOK_MS = 5_000
"""How long an answer is waited for at the first look: at a table's log, which is small."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_STATUS = re.compile(r"^\s*([45]\d\d [A-Z][A-Za-z ]+)$", re.MULTILINE)
_CODE = re.compile(r"<Code>(\w+)</Code>")
_PASSWORD = re.compile(r"^[^/@:]*:(?!\d+(?:/|$)).*@")
"""A login with one, which may have a slash as half of Amazon's secrets do; a number is a port."""
_CUT_LOGIN = re.compile(r"^(?:[^/@]*@|[^/@:]*:(?!\d+(?:/|$)).*)")
"""A login without a password, or one whose end went with what looked like a query."""
_SIGNED = re.compile(r"(https?://[^\s?]*)\?\S*")
_REQUEST = re.compile(r"^Error performing .* - ")
_NO_CREDENTIALS = re.compile(
    r"credential|token request|/api/token|Missing (Secret)?AccessKey|Account must be", re.IGNORECASE
)

_AMAZON = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_REGION, and for another "
    "store than Amazon's AWS_ENDPOINT_URL (AWS_ALLOW_HTTP=true if that is http)"
)
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS, the path of a service account's key"
_AZURE = (
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or "
    "AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID"
)
_VARIABLES = (
    dict.fromkeys(("s3", "s3a"), _AMAZON)
    | dict.fromkeys(("gs", "gcs"), _GOOGLE)
    | dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), _AZURE)
)
"""Environment variables by which delta-rs reaches a store, by the URL's scheme."""
_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
_IN_HEADERS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
)  # fmt: skip
"""What goes into the headers of requests, or into their addresses."""
_MAKERS = {"s": "AWS_", "a": "AZURE_"}
"""How the names of variables begin, by how the schemes of stores do."""

NO_CREDENTIALS = "no credentials were found"
NO_BUCKET = "NoSuchBucket"
NO_BUCKET_SAID = "there is no such bucket or container: check the URL and the endpoint"
_NO_TAGS = "ETag Header missing"
NO_TAGS_SAID = "the store gives its objects no tags (ETag): name another store"
_LOCKED_OUT = ("401 ", "403 ", NO_CREDENTIALS)
"""How reasons begin that other credentials may mend."""
_NOT_ASKED = ": http:// needs AWS_ALLOW_HTTP=true"
_REFUSAL = re.compile(r"4\d\d |501 |505 ")
_PASSING = re.compile(r"40[89] |412 |42[59] |.*\(RequestTimeout\)")
"""Of those, the ones that are no answer to what was asked, or the answer to a race."""
_DEBUG = "\n\nDebug source"
"""What follows it in an error of obstore is for its makers."""
_ASKED = re.compile(r"Error performing \w+ (https?://[^/\s?]+)")
_REASON = re.compile(r'message: "([^"]+)"')
_ANSWER = re.compile(r"status code: ([45]\d\d [A-Z][A-Za-z ]+)")


class _Settings:
    """How this process reaches object stores."""

    used = StoreConfig()


def use_settings(store: StoreConfig) -> None:
    """Reach object stores by these settings from here on, in the whole process."""
    _Settings.used = store


def used_settings() -> StoreConfig:
    """Return the settings by which this process reaches object stores."""
    return _Settings.used


def reading_options(scheme: str, *, look: bool = False) -> dict[str, str]:
    """Return what delta-rs is told beside the environment; by default it tries for minutes."""
    check_environment(scheme)
    used = used_settings()
    timeout_ms = min(used.request_timeout_ms, LOOK_MS) if look else used.request_timeout_ms
    told = {
        "connect_timeout": f"{used.connect_timeout_ms}ms",
        "timeout": f"{timeout_ms}ms",
        "max_retries": str(used.retries),
        "retry_timeout": f"{used.retry_timeout_ms}ms",
    }
    return told | place_options(scheme)


def check_environment(scheme: str) -> None:
    """Check what a client takes from the environment; one that is made of odd values panics.

    Raises
    ------
    ConfigError
        A variable is none that can be; its value, which may be a secret, is not said.
    """
    maker = _MAKERS.get(scheme[:1].lower(), "none")
    for name in (*_IN_HEADERS, *_ENDPOINTS):
        value = os.environ.get(name)
        if value is None or not name.startswith(maker):
            continue
        if not value.isprintable():
            raise ConfigError(
                f"{name} has a line break or another control character: set it without"
            )
        if name in _ENDPOINTS and not used_settings().endpoint and not is_endpoint(value):
            raise ConfigError(
                f"{name} is no plain URL: give http://HOST:PORT or https://HOST:PORT, or unset it"
            )


def place_options(scheme: str) -> dict[str, str]:
    """Return where the settings say that S3 is, in the words of obstore and delta-rs."""
    used, told = used_settings(), {}
    if scheme not in {"s3", "s3a"}:
        return {}
    if used.endpoint:
        told["aws_endpoint"] = used.endpoint
        told["aws_allow_http"] = str(used.endpoint.startswith("http:")).lower()
    if used.region:
        told["aws_region"] = used.region
    if used.addressing != "auto":
        told["aws_virtual_hosted_style_request"] = str(used.addressing == "virtual").lower()
    return told


def explain_store_error(error: Exception) -> str:
    """Return why obstore failed, in one line without keys, signatures and bodies."""
    text = str(error).partition(_DEBUG)[0]
    if status := _ANSWER.search(text):
        code = _CODE.search(text)
        return status[1].strip() + (f" ({code[1]})" if code else "")
    if _NO_CREDENTIALS.search(text):
        return NO_CREDENTIALS
    if server := _ASKED.search(text):
        if "builder error" in text:
            return f"{server[1]} is not asked{_NOT_ASKED}"
        if "error sending request" in text:
            reasons = [*_REASON.findall(str(error)), "no connection, or nothing in time"]
            return f"{server[1]} does not answer: {reasons[0]}"
    line = " ".join(text.partition("<")[0].split())
    return _SIGNED.sub(r"\1", line.rpartition(" - ")[2]) or type(error).__name__


def find_refusal(path: str, why: str) -> StoreRefusedError | None:
    """Return the error for a reason that time does not mend; None where later it may be another.

    Parameters
    ----------
    why
        As `explain_store_error` and `short_reason` say it.
    """
    if why.startswith(_LOCKED_OUT):
        why = f"{why}: credentials {explain_credentials(urlsplit(path).scheme)}"
    elif NO_BUCKET in why:
        why = f"{why}: {NO_BUCKET_SAID}"
    elif _NO_TAGS in why:
        why = NO_TAGS_SAID
    elif _NOT_ASKED not in why and (not _REFUSAL.match(why) or _PASSING.match(why)):
        return None
    return StoreRefusedError(errno.EACCES, why, path)


def split_container(bucket: str) -> tuple[str, str]:
    """Split a bucket's URL into its container, and the account that it names, if any."""
    container, _, host = urlsplit(bucket).netloc.partition("@")
    return container, host.partition(".")[0]


def is_url(name: str) -> bool:
    """Tell whether a name is a URL and no path."""
    return _SCHEME.match(name) is not None


def is_file_url(name: str) -> bool:
    """Tell whether a name is a URL of a file on this machine."""
    return name.lower().startswith("file:")


def hide_secret(url: str) -> str:
    """Return a URL without what may be a secret: a login and a query."""
    head, slashes, tail = re.split("(/+)", url, maxsplit=1)
    return head + slashes + _CUT_LOGIN.sub("", _PASSWORD.sub("", re.split("[?#]", tail)[0]))


def split_url(url: str, what: str) -> SplitResult:
    """Split a URL into its parts.

    Raises
    ------
    SpecError
        What stands where a host does cannot be one.
    """
    try:
        return urlsplit(url)
    except ValueError:  # its words may repeat a password
        raise SpecError(
            f"{what} {hide_secret(url)!r} is no URL: its host or bucket has a bracket, or a "
            "character that can be read as two"
        ) from None


def path_of(url: str, what: str = "the URL") -> str:
    """Return the path of a file: URL; any other name as it is.

    Raises
    ------
    SpecError
        It is a file: URL with more than a path.
    """
    if not is_file_url(url):
        return url
    parts = split_url(url, what)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise SpecError(
            f"{what} {url!r} is no plain file:///FOLDER: it has a host, a query or a fragment; "
            "write %3F for ? and %23 for #"
        )
    return unquote(parts.path)


def split_version(name: str) -> tuple[str, int | None]:
    """Split URL@VERSION; before any other @ is a container or an account."""
    url, at, tail = name.rpartition("@")
    return (url, int(tail)) if at and tail.isdigit() else (name, None)


def check_url(url: str, what: str) -> None:
    """Refuse a URL that carries a secret: what was read is told in answers and kept in commits.

    Raises
    ------
    SpecError
        It has a password or a query, or is none.
    """
    parts = split_url(url, what)
    if parts.query or parts.fragment or _PASSWORD.match(re.split("/+", url, maxsplit=1)[-1]):
        raise SpecError(
            f"{what} {hide_secret(url)!r}: its URL has a password, a query or a fragment, which "
            f"are left out here: credentials {explain_credentials(parts.scheme)}"
        )


def check_table(url: str, version: int | None, what: str) -> None:
    """Check that a URL is one of a Delta table that can be reached.

    Raises
    ------
    SpecError
        It is not; the message says what to do.
    """
    try:
        DeltaTable(
            url, version=version, storage_options=reading_options(urlsplit(url).scheme, look=True)
        )
    except TableNotFoundError as error:
        if "Unknown scheme" in str(error):
            known = ", ".join(f"{scheme}://" for scheme in _VARIABLES)
            raise SpecError(
                f"{what} {url!r}: scheme {urlsplit(url).scheme!r} is none of {known}; "
                "--engine spark reads what Spark has a file system for"
            ) from None
        raise SpecError(
            f"{what} {url!r} is no Delta table: from a URL only those are read without Spark"
        ) from None
    except (DeltaError, OSError, ValueError) as error:
        raise unreachable_error(url, what, error) from None


def unreachable_error(url: str, what: str, error: Exception) -> SpecError:
    """Return what to say when a table of an object store cannot be read."""
    scheme = urlsplit(url).scheme
    return SpecError(
        f"{what} {url!r} cannot be read: {short_reason(error)}: check the URL; "
        f"credentials {explain_credentials(scheme)}"
    )


def short_reason(error: Exception) -> str:
    """Return why in a few words: the store's status and code, or the innermost of the errors."""
    text = DECORATION.sub("", str(error))
    if _NO_CREDENTIALS.search(text):
        return NO_CREDENTIALS
    if status := _STATUS.search(text):
        code = _CODE.search(text)
        return status[1].strip() + (f" ({code[1]})" if code else "")
    lines = [line.strip() for line in text.partition("<")[0].splitlines() if line.strip()]
    if "builder error" in text:
        return lines[-1] + _NOT_ASKED
    said = ": ".join(_REQUEST.sub("", line) for line in lines[-2:])
    return _SIGNED.sub(r"\1", said) or type(error).__name__


def explain_credentials(scheme: str) -> str:
    """Return by what credentials are given, as the end of a sentence."""
    named = _VARIABLES.get(scheme.lower())
    if named:
        return f"are given by {named}"
    return "are given by environment variables, or to Spark with --engine spark"
