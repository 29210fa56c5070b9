#!/bin/bash
sort -o /work/names.txt /work/names.txt
