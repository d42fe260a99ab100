"""One real experiment from start to end: cluster, baseline run, driver, faults, leak check."""
