"""Run the command line as `python -m gymq`."""

from gymq.cli import main

main()
