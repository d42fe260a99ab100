"""What goes wrong with storage: a gateway between any S3 client and any S3 endpoint, and damage to files on a disk."""
