"""Importing this module binds the process to its parent: for the fork server, which can be told what to import first.

By itself it stays for as long as one of its processes computes, whoever that is for.
"""

import os

from gymq.parent_death import die_with_parent

die_with_parent(os.getppid())
