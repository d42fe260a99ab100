#!/bin/bash
# Builds the image of the KubeRay operator from the static program, and $KUBERAY_MANIFEST: the CRDs, the rights and the
# Deployment that its release has, in a namespace of its own, with our image.
set -euo pipefail
tmp=$(mktemp -d -p "$KIND_HOME")
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/root/tmp" "$tmp/kuberay"
cp "$BIN/ray-operator" "$tmp/root/manager"
tar -C "$tmp/root" -c . |
    docker import --change 'USER 65532' --change "LABEL $KEY_LABEL=$KEY" - "$OPERATOR_IMAGE" >/dev/null
cp -r "$KIND_HOME/kuberay/." "$tmp/kuberay/"
cat >"$tmp/kustomization.yaml" <<K
resources: [kuberay/default, namespace.yaml]
namespace: kuberay-operator
patches:
# on a busy machine a tenth of a core is too little to answer its probes
- target: {kind: Deployment, name: kuberay-operator}
  patch: '[{"op": "remove", "path": "/spec/template/spec/containers/0/resources/limits"}]'
K
printf 'apiVersion: v1\nkind: Namespace\nmetadata: {name: kuberay-operator}\n' >"$tmp/namespace.yaml"
"$BIN/kubectl" kustomize "$tmp" | sed -E "s#image: \S*kuberay/operator\S*#image: $OPERATOR_IMAGE#" >"$tmp/manifest.yaml"
grep -q "image: $OPERATOR_IMAGE" "$tmp/manifest.yaml" || { echo "the operator's Deployment has another image" && exit 1; }
mv "$tmp/manifest.yaml" "$KUBERAY_MANIFEST"
