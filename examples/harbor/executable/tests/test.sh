#!/bin/bash
if [ -x /work/run.sh ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
