"""What Ray Train shows to a training function and its driver, and the runtime itself does without."""
