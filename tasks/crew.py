"""Several tasks at once: every one that is ready gets an agent, until none is left or somebody stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from gates.errors import GateError

from tasks.agents.adapters import Agent
from tasks.attempt import Shop
from tasks.errors import TaskError
from tasks.evidence.state import WORKED, State, Status, statuses
from tasks.files import Entry
from tasks.loop import run_task
from tasks.publish import queue_of
from tasks.verdict import Verdict

Choose = Callable[[Entry], Agent | None]  # None: nobody here takes it


def run_queue(
    shop: Shop, choose: Choose, parallel: int, usd: float | None = None
) -> dict[str, Verdict | str]:
    """Verdict by task, or in words why it could not be run. usd: for all together, as agents report it; what
    runs when it is used up still ends."""
    begun: dict[str, Future[Verdict]] = {}
    stopped = threading.Event()
    before = shop.stop
    shop = replace(shop, stop=lambda: stopped.is_set() or before())
    paid_before = paid(shop)
    with ThreadPoolExecutor(parallel) as pool:
        try:
            while True:
                spent = paid(shop) - paid_before
                over = usd is not None and spent >= usd
                waiting = {} if over or shop.stop() else ready(shop, choose, begun)
                running = [one for one in begun.values() if not one.done()]
                for name, (entry, agent) in list(waiting.items())[: max(0, parallel - len(running))]:
                    begun[name] = pool.submit(run_task, shop, entry, agent)
                running = [one for one in begun.values() if not one.done()]
                if not running:
                    break
                wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
        except BaseException:
            stopped.set()  # the pool waits for what runs: it ends soon, its work is kept
            raise
    return {name: result(one) for name, one in begun.items()}


def ready(shop: Shop, choose: Choose, begun: Mapping[str, Future[Verdict]]) -> dict[str, tuple[Entry, Agent]]:
    """Tasks that may begin now and have not been tried here, in order."""
    entries, found = overview(shop)
    chosen = {}
    for name, status in found.items():
        if status.state is State.READY and name not in begun:
            agent = choose(entries[name])
            if agent is not None:
                chosen[name] = (entries[name], agent)
    return chosen


def overview(shop: Shop) -> tuple[dict[str, Entry], dict[str, Status]]:
    tip = shop.target.tip()
    entries = queue_of(shop.repository, tip)
    return entries, statuses(shop.repository, entries, shop.ledger.records(), tip.commit)


def paid(shop: Shop) -> float:
    """US dollars, over all that the ledger has."""
    return sum(one.data.get("usd") or 0.0 for one in shop.ledger.records() if one.kind == WORKED)


def result(future: Future[Verdict]) -> Verdict | str:
    try:
        return future.result()
    except (TaskError, GateError) as error:
        return str(error)
