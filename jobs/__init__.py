"""Jobs that are never lost: their records, storage, queue and leases, and what a job may compute."""
