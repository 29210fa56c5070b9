#!/bin/bash
if [ -z "$(find /work -type f -empty)" ] && [ "$(find /work -type f | wc -l)" = 3 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
