"""Lists of objects that are a second old: what is new is not in them, and what is gone still is."""

from __future__ import annotations

import re
import threading
import time
from html import unescape
from urllib.parse import unquote

AGE_S = 1.0
ENTRY = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
COMMON = re.compile(rb"<CommonPrefixes>.*?</CommonPrefixes>", re.DOTALL)


class Lists:
    """Knows which objects were written or removed of late, and what lists said of them before."""

    def __init__(self):
        self._lock = threading.Lock()
        self._written = {}
        self._listed = {}

    def note(self, path):
        """Note that an object is written or removed, or several of a bucket."""
        _, _, key = path.lstrip("/").partition("/")
        with self._lock:
            self._written.setdefault(key, 0.0)
            if key in self._listed:
                return  # an object that is written again is listed all the time
            self._written[key] = time.monotonic()

    def show(self, content, prefix, *, stale):
        """Return a list's XML, or what it would have been a while ago."""
        entries = {key_of(entry): entry for entry in ENTRY.findall(content)}
        now = time.monotonic()
        with self._lock:
            gone = {
                key: entry
                for key, (at, entry) in self._listed.items()
                if key.startswith(prefix) and key not in entries and now - at <= AGE_S
            }
            young = {key for key in entries if now - self._written.get(key, 0.0) <= AGE_S}
            self._listed |= {key: (now, entry) for key, entry in entries.items()}
        if not stale or COMMON.search(content):
            return content
        kept = {key: entry for key, entry in entries.items() if key not in young} | gone
        shown = b"".join(kept[key] for key in sorted(kept))
        head, tail = ENTRY.split(content)[0], content.rpartition(b"</Contents>")[2]
        if not entries:
            head, _, tail = content.rpartition(b"</ListBucketResult>")
            tail = b"</ListBucketResult>"
        return head + shown + tail


def key_of(entry):
    """Return the key of a list's entry."""
    return unquote(unescape(KEY.search(entry)[1].decode()))
