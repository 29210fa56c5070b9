"""`gymq data`: data sets listed, shown, prepared and made."""
