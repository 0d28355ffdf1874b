"""Work as task files: done by agents in parallel, judged by the gates, landed by proof, kept in a ledger.

`python -m tasks`. Imports point down this list: commands; show, report; crew, proving; loop; attempt;
publish, landing, judging; documents, agents, evidence, work; files; model; and from any of them to `gates`,
never to the engine.
"""
