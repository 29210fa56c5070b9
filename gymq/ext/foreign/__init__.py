"""Rollouts in files of other programs: what the packages that read them share."""
