"""A verifier that computes for ever, in a process that may do so."""

import gymq


class Hanging(gymq.Resources[gymq.Row]):
    """Never gives a verdict."""

    verify_timeout_s = 3600.0

    def verify_in_process(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        while True:
            pass
