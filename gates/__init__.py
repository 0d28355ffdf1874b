"""The judges: one module per gate, each with the same question, `check(context) -> Outcome`.

What a gate believes (its own code, references, tolerances, seeds and baselines) comes from the base commit;
the head supplies only what is judged. `python -m gates --help` lists what there is; governance/ is the law
that the gates enforce, as data.
"""
