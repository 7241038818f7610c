"""The regular expressions that members subscribe with: checked, and resolved when that is due."""

from __future__ import annotations

from collections import Counter

import re2

from coordinator.config import Config
from coordinator.core.consumer.member_removal import unused_regexes
from coordinator.core.consumer.member_update import MemberUpdate
from coordinator.core.events import Heartbeat, ResolveRegexes, Task
from coordinator.core.state.groups import Group, State
from coordinator.errors import ErrorCode, GroupError

REGEX_REFRESH_MIN_MS = 10_000


def update_regexes(
    state: State, config: Config, update: MemberUpdate, event: Heartbeat, now_ms: int
) -> tuple[list[str], list[Task]]:
    """Check a new regex, find unused ones, ask for resolution when due (G-81…G-85)."""
    group, regex = update.group, update.meta.subscribed_topic_regex
    before = update.old.subscribed_topic_regex if update.old else ""
    if not regex and not before and not group.regex_members:
        return [], []
    unused: list[str] = []
    users = Counter(group.regex_members)
    if update.regex_changed:
        if before and update.old is not None:
            unused = unused_regexes(group, [update.old])
            users[before] -= 1
        if regex:
            if group.regex_members[regex] == 0:
                check_regex(regex)
            users[regex] += 1
    used = tuple(sorted(+users))
    due = bool(used) and _is_refresh_due(state, config, group, used, now_ms)
    task = ResolveRegexes(group.group_id, used, event.find_visible)
    return unused, [task] if due else []


def check_regex(regex: str) -> None:
    """Refuse a regular expression that RE2 does not accept.

    Raises
    ------
    GroupError
        INVALID_REGULAR_EXPRESSION.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else reason
        raise GroupError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from None


def _is_refresh_due(
    state: State, config: Config, group: Group, used: tuple[str, ...], now_ms: int
) -> bool:
    """Whether the regexes are due to be resolved (G-83)."""
    resolved = group.regexes.values()
    if resolved:
        since = now_ms - max(found.timestamp for found in resolved)
        if 0 <= since <= REGEX_REFRESH_MIN_MS:
            return False
        if since < 0 or since > config.kafka.regex_refresh_interval_ms:
            return True  # before 0: the clock of a coordinator before us was ahead
    if set(used) != set(group.regexes):
        return True
    return not state.topics_awaited and min(f.version for f in resolved) < state.new_topics_version
