#!/bin/bash
echo hello > /work/greeting.txt
