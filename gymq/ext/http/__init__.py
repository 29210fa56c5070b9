"""What all of gymq's HTTP servers share: bodies, limits, origins, errors, and model calls over HTTP."""
