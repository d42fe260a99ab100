"""`shaketable run --kill-at-each`: SIGKILL at every file event of one checkpoint of a user's own job."""
