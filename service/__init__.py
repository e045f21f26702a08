"""The HTTP service: validates, dispatches to solver processes, encodes. No mathematics here."""
