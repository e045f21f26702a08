"""Each route as a pure function from typed arguments to the request; see `anglewise_client._call.Call`."""
