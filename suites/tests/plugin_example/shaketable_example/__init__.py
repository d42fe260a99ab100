"""A fault and an invariant that another package than shaketable declares."""
