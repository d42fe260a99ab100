"""Where a run under test keeps its log and checkpoints: a directory, a small disk, or S3 behind a fault gateway."""
