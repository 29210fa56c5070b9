"""Files of rollouts, of gymq and of other programs: what the packages that read them share."""
