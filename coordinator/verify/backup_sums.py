"""Check that the files a backup lists exist and match their checksums."""

from __future__ import annotations

import os

from coordinator.display.progress import task
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.store_marks import read_backup, sum_file
from coordinator.storage.tables.store_files import refuse_silence


def check_sums(store: str, among: str = "") -> None:
    """Compare the files of a backup with its list. A store that is not a backup passes.

    Parameters
    ----------
    among
        Only paths that contain this text are compared; "" compares all.

    Raises
    ------
    CorruptLog
        A file is missing, or its content differs.
    """
    backup = read_backup(store)
    if backup is None:
        return
    files = {name: wanted for name, wanted in backup.files.items() if among in name}
    with task("verify: checksums", len(files)) as progress:
        for name, wanted in sorted(files.items()):
            path = os.path.join(store, name)
            try:
                found = sum_file(path)
            except OSError as error:
                refuse_silence(path, error)
                raise CorruptLog(f"{path} cannot be read ({error}): use another backup") from None
            if found != wanted:
                raise CorruptLog(
                    f"{path} is damaged: its checksum differs from the backup's list; "
                    "use another backup"
                )
            progress.advance()
