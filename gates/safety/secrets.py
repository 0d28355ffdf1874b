"""Secrets in added lines, by the forms that their issuers give them and by names that assign one.

A table and no library: detect-secrets, the one that is importable, had its last release in May 2024 and needs
an HTTP client; the others are programs in Go. The forms are those that issuers document. Nothing here ever
gives the secret: a finding is a path, a line and a kind.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gates.evidence.verdict import Finding
from gates.trees.lines import Line, added_lines
from gates.trees.repository import Repository, Tree

FORMS = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----",
    "a PuTTY private key": r"^PuTTY-User-Key-File-\d",
    "an AWS access key": r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
    "a GitHub token": r"\bgh[oprsu]_[A-Za-z0-9]{36,}|\bgithub_pat_[A-Za-z0-9_]{60,}",
    "a GitLab token": r"\bgl(?:agent|cbt|dt|ft|imt|oas|pat|ptt|rt|soat)-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[a-z]-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}",
    "a Slack webhook": r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/]{20,}",
    "a PyPI token": r"\bpypi-Ag[A-Za-z0-9_-]{50,}",
    "an npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{34,}\b",
    "a Google API key": r"\bAIza[A-Za-z0-9_-]{35}",
    "a Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
    "a SendGrid key": r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    "an API key (sk-..)": r"\bsk-(?=[\w-]{0,60}[A-Z])(?=[\w-]{0,60}\d)[\w-]{20,200}",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password in an address": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>{}$]{1,64}:[^\s:/@\"'<>{}$*]{6,128}@",
}
KINDS = {kind: re.compile(form) for kind, form in FORMS.items()}
NAMED = re.compile(
    r"""(?P<name>(?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|private_?key|credential)
        [\w.-]{0,40})["']?\]?\s{0,9}(?:=|:=|:|=>)\s{0,9}
        (?:(?P<mark>["'])(?P<quoted>[^"'\s]{12,256})(?P=mark)|(?P<bare>[A-Za-z0-9+/_=.-]{16,256})\s*$)""",
    re.IGNORECASE | re.VERBOSE,
)
# Names of what identifies content, which looks as random and is no secret.
HARMLESS = re.compile(r"sha\d*|hash|digest|fingerprint|_id\b", re.IGNORECASE)
PLACEHOLDER = re.compile(
    r"example|placeholder|change_?me|your|dummy|x{4}|\.\.\.|^[<%]|^\$[{(A-Z]|\{\w*\}", re.IGNORECASE
)
# Where values stand without quotes; elsewhere what follows `=` is code.
SETTINGS = (".env", ".ini", ".cfg", ".conf", ".properties", ".yaml", ".yml", ".toml", ".sh", ".netrc")
LEAST_BITS = 3.3  # of entropy for each sign of a random value; words and names have less
MOST_SIGNS = 4096  # of a line: longer ones are looked at in pieces
OVERLAP = 512  # of two pieces, so that no secret is cut
MOST_BYTES = 64 << 20  # of one file; a larger one is named, not read
BATCH_BYTES, BATCH_FILES = 16 << 20, 500  # in one call of git


@dataclass(frozen=True, slots=True)
class Searched:
    """lines: how many were searched. too_large: files that were not."""

    lines: int
    findings: Sequence[Finding]
    too_large: Sequence[str] = ()


def scan(lines: Iterable[Line]) -> Searched:
    count = 0
    findings: list[Finding] = []
    for line in lines:
        count += 1
        findings += [
            Finding(f"{kind} (not shown): take it back where it was issued", line.path, line.number)
            for kind in dict.fromkeys(kind for part in parts(line.text) for kind in kinds(part, line.path))
        ]
    return Searched(count, findings)


def parts(text: str) -> Iterator[str]:
    for begin in range(0, max(1, len(text)), MOST_SIGNS - OVERLAP):
        yield text[begin : begin + MOST_SIGNS]


def kinds(text: str, path: str) -> Iterator[str]:
    found = [kind for kind, form in KINDS.items() if form.search(text)]
    yield from found
    if not found and any(is_secret(match, path) for match in NAMED.finditer(text)):
        yield "a secret by its name"


def is_secret(match: re.Match[str], path: str) -> bool:
    value = match["quoted"] or match["bare"]
    if match["bare"] and not path.endswith(SETTINGS):
        return False
    before = re.search(r"[\w.-]*$", match.string[max(0, match.start() - 60) : match.start()])
    name = f"{before[0] if before else ''}{match['name']}"
    if HARMLESS.search(name) or PLACEHOLDER.search(value):
        return False
    mixed = re.search(r"\d", value) and re.search(r"[A-Za-z]", value)
    return bool(mixed) and entropy(value) >= LEAST_BITS


def entropy(text: str) -> float:
    """Shannon's, in bits for each sign."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


# --- added lines ------------------------------------------------------------------------------------


def search(repository: Repository, base: Tree, head: Tree) -> Searched:
    """In lines that the head has and the base has not. Files that git takes for binary are searched as well:
    an attribute in the diff itself could call any file binary."""
    sizes = file_sizes(repository, head)
    paths = changed(repository, base, head)
    small = [path for path in paths if sizes.get(path, 0) <= MOST_BYTES]
    found = scan(
        line for batch in batches(small, sizes) for line in added_lines(repository, base, head, batch)
    )
    return replace(found, too_large=[path for path in paths if path not in set(small)])


def passing(repository: Repository, base: Tree, head: Tree, known: Collection[Finding]) -> list[Finding]:
    """In what commits between the two have added, beyond what is known: a secret that a later commit takes
    away again is published all the same. Merges bring nothing that their parents do not have."""
    if not base.commit or not head.commit:
        return []
    found = []
    told = {(one.path, one.message) for one in known}
    between = f"{base.commit}..{head.commit}"
    for line in repository.git("rev-list", "--no-merges", "--parents", between).splitlines():
        commit, *parents = line.split()
        if parents:
            for one in search(repository, repository.tree(parents[0]), repository.tree(commit)).findings:
                if (one.path, one.message) not in told:
                    told.add((one.path, one.message))
                    found.append(replace(one, message=f"{one.message}; it stays in commit {commit[:12]}"))
    return found


def batches(paths: Iterable[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and (size + sizes.get(path, 0) > BATCH_BYTES or len(batch) == BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += sizes.get(path, 0)
    if batch:
        yield batch


def changed(repository: Repository, base: Tree, head: Tree) -> list[str]:
    listing = repository.git(
        "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=AMT", base.tree, head.tree
    )
    return [path for path in listing.split("\0") if path]


def file_sizes(repository: Repository, tree: Tree) -> dict[str, int]:
    """`git ls-tree -l`: `mode type blob size\\tpath`; a submodule's size is `-`."""
    entries = (entry.partition("\t") for entry in repository.git("ls-tree", "-rlz", tree.tree).split("\0"))
    return {path: int(words[3]) for head, _, path in entries if path and (words := head.split())[3].isdigit()}
