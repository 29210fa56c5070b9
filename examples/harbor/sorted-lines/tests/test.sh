#!/bin/bash
if [ "$(cat /work/names.txt)" = "$(printf 'Ada\nBob\nCid')" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
