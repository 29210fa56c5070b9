"""One module per core suite, named like it, and `resources` for all resources workers.

A core suite's module has `async def run(case_input)`, which returns what the case's `expect` is compared with or raises
`Refused`. It may have `normalise(value)`, applied to both sides before they are compared.
"""
