"""Ray Train V2 as a subject: its driver, its worker, what its controller tells, and the production recorder."""
