"""What the page of a report shows of one experiment besides its time line: pure leaves, one file each."""
