"""Which machine a result is from: two results compare only where the fingerprint is the same."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from typing import Any

from volta.runtime import gateway


def machine() -> dict[str, Any]:
    """CPU, instruction sets, caches, CPUs usable, memory, system; `id` covers what decides speed."""
    info = gateway.cpu_info()
    hardware = {
        "cpu": info.model,
        "isas": list(info.isas),
        "features": list(info.features),
        "cpus": info.cpus,
        "cache_bytes": list(info.cache_bytes),
    }
    digest = hashlib.sha256(json.dumps(hardware, sort_keys=True).encode()).hexdigest()
    return {
        "id": digest[:16],
        **hardware,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def described(facts: dict[str, Any]) -> str:
    """One line."""
    sets = ", ".join([*facts["isas"], *facts["features"]])
    return f"{facts['cpu']}, {facts['cpus']} CPUs usable, {sets}; {facts['system']}; machine {facts['id']}"
