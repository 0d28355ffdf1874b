"""Every session, and every process it starts, has a cache directory of its own: what was tuned on this
machine never decides what is tested."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Each worker of xdist comes through here, too."""
    before = os.environ.get("VOLTA_CACHE")
    directory = tempfile.mkdtemp(prefix="volta-tests-")
    os.environ["VOLTA_CACHE"] = directory

    def restore() -> None:
        shutil.rmtree(directory, ignore_errors=True)
        if before is None:
            os.environ.pop("VOLTA_CACHE", None)
        else:
            os.environ["VOLTA_CACHE"] = before

    config.add_cleanup(restore)
