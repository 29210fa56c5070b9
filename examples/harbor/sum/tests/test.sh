#!/bin/bash
if [ "$(cat /work/sum.txt 2>/dev/null)" = 60 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
