"""kind from nothing, on a machine that can pull no image: what `nox -s kubernetes` runs the gate on.

`python -m shaketable.suites.tools.kind --help` says how. It builds Kubernetes and KubeRay from Go modules, and the
images of nodes and pods out of Debian, once, into a cache.
"""
