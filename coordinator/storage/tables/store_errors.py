"""What an object store says of a failure, in one line without keys, signatures and bodies.

What delta-rs says is a chain of errors on ten lines, with the answer's whole body, in which stores
repeat access keys and signatures; obstore adds what only its makers can use.
"""

from __future__ import annotations

import errno
import re
from urllib.parse import urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from assignors import SpecError
from coordinator.errors.texts import DECORATION
from coordinator.storage.tables.files import StoreRefusedError
from coordinator.storage.tables.store_options import reading_options
from coordinator.storage.tables.urls import PASSWORD, hide_secret, split_url

_STATUS = re.compile(r"^\s*([45]\d\d [A-Z][A-Za-z ]+)$", re.MULTILINE)
_CODE = re.compile(r"<Code>(\w+)</Code>")
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

NO_CREDENTIALS = "no credentials were found"
NO_BUCKET = "NoSuchBucket"
NO_BUCKET_TEXT = "bucket or container not found: check the URL and the endpoint"
_NO_TAGS = "ETag Header missing"
NO_TAGS_TEXT = "the store gives its objects no tags (ETag): name another store"
_LOCKED_OUT = ("401 ", "403 ", NO_CREDENTIALS)
"""How reasons begin that other credentials may mend."""
_NOT_ASKED = ": http:// needs AWS_ALLOW_HTTP=true"
_REFUSAL = re.compile(r"4\d\d |501 |505 ")
_PASSING = re.compile(r"40[89] |412 |42[59] |.*\(RequestTimeout\)")
"""Of those, the ones that do not answer the request, or answer a race."""
_DEBUG = "\n\nDebug source"
"""What follows it in an error of obstore is for its makers."""
_ASKED = re.compile(r"Error performing \w+ (https?://[^/\s?]+)")
_REASON = re.compile(r'message: "([^"]+)"')
_ANSWER = re.compile(r"status code: ([45]\d\d [A-Z][A-Za-z ]+)")


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
        why = f"{why}: {NO_BUCKET_TEXT}"
    elif _NO_TAGS in why:
        why = NO_TAGS_TEXT
    elif _NOT_ASKED not in why and (not _REFUSAL.match(why) or _PASSING.match(why)):
        return None
    return StoreRefusedError(errno.EACCES, why, path)


def check_url(url: str, what: str) -> None:
    """Refuse a URL that carries a secret: URLs that were read appear in answers and in commits.

    Raises
    ------
    SpecError
        It has a password or a query, or is not a URL.
    """
    parts = split_url(url, what)
    if parts.query or parts.fragment or PASSWORD.match(re.split("/+", url, maxsplit=1)[-1]):
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
                f"{what} {url!r}: scheme {urlsplit(url).scheme!r} is not one of {known}; "
                "--engine spark reads any URL for which Spark has a file system"
            ) from None
        raise SpecError(
            f"{what} {url!r} is not a Delta table: without Spark, only Delta tables can be read "
            "from a URL"
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
    reason = ": ".join(_REQUEST.sub("", line) for line in lines[-2:])
    return _SIGNED.sub(r"\1", reason) or type(error).__name__


def explain_credentials(scheme: str) -> str:
    """Return by what credentials are given, as the end of a sentence."""
    named = _VARIABLES.get(scheme.lower())
    if named:
        return f"are given by {named}"
    return "are given by environment variables, or to Spark with --engine spark"
