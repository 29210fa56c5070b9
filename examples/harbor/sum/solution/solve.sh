#!/bin/bash
awk '{ total += $1 } END { print total }' /work/numbers.txt > /work/sum.txt
