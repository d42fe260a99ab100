"""Kubernetes of one machine for one run of the command: `--cluster kind`. Its pods are those of `--cluster kuberay`."""
