"""`shaketable preflight`: what a cluster's file says, what a worker asks for, and what does not fit."""
