"""How the fork server and the workers that it forks end."""

import subprocess
import sys
from pathlib import Path

AUTHOR = """
import atexit, gc, threading, time
from gymq.cluster import forkserver

gc.freeze()
file = open("left_open", "w")
file.write("written")
atexit.register(lambda: print("exit function"))
threading.Thread(target=lambda: time.sleep(0.1) or print("thread")).start()
forkserver.end(3)
"""


def test_what_authors_left_is_ended(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", AUTHOR], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "thread\nexit function\n", "")
    assert (tmp_path / "left_open").read_text() == "written"
