"""The states of the USA with their postal codes."""

from __future__ import annotations

# Two-word names first, since `virginia` is in `west virginia`.
_STATES = """
new hampshire NH, new jersey NJ, new mexico NM, new york NY, north carolina NC, north dakota ND, rhode island RI,
south carolina SC, south dakota SD, west virginia WV, alabama AL, alaska AK, arizona AZ, arkansas AR, california CA,
colorado CO, connecticut CT, delaware DE, district of columbia DC, florida FL, georgia GA, hawaii HI, idaho ID,
illinois IL, indiana IN, iowa IA, kansas KS, kentucky KY, louisiana LA, maine ME, maryland MD, massachusetts MA,
michigan MI, minnesota MN, mississippi MS, missouri MO, montana MT, nebraska NE, nevada NV, ohio OH, oklahoma OK,
oregon OR, pennsylvania PA, tennessee TN, texas TX, utah UT, vermont VT, virginia VA, washington WA, wisconsin WI,
wyoming WY
"""
_PAIRS = [state.rpartition(" ") for state in " ".join(_STATES.split()).split(", ")]
STATES = {name: code for name, _, code in _PAIRS}
