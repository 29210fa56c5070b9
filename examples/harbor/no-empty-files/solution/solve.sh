#!/bin/bash
find /work -type f -empty -delete
