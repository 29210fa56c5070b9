"""The errors of bytes that cannot be decoded."""

import msgspec

# msgspec does not turn the errors of Python into its own.
UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
