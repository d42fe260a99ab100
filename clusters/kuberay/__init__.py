"""A Ray cluster that KubeRay makes for the harness, on somebody's Kubernetes."""
