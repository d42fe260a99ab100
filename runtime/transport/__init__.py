"""Messages between driver, agents and workers, and the authenticated sockets they travel over."""
