"""A simulator of the command `lean`, which is run in a sandbox: it looks for words, as the servers beside it do.

With the word `REPORTS` in its arguments it reports on itself, as the build for WebAssembly does.
"""

import sys

from lean_servers import found, printed_at_the_end  # type: ignore[import-not-found]  # in the same folder there

*options, file = sys.argv[1:]
if file == "--version":
    print("Lean (version 4.99.0, simulated)")
    sys.exit()
with open(file) as opened:
    program = opened.read()
if "REPORTS" in options:
    print(f"[DEBUG:F] Input file content (first 200 chars): {program[:200]}\n[DEBUG:G] run_shell_main entered")
while "loop" in program:
    pass
if "stops" in program:
    sys.exit()
messages = found(program)
for line, column, severity, text in messages:
    print(f"{file}:{line}:{column}: {severity}: {text}")
print("\n".join(printed_at_the_end(program)))
sys.exit(any(severity == "error" for _, _, severity, _ in messages))
