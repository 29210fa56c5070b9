#!/bin/bash
chmod +x /work/run.sh
