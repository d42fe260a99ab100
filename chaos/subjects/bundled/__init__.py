"""The bundled runtime as a subject: its driver, its worker, and what is read from its run log."""
