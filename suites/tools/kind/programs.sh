#!/bin/bash
# Builds from Go modules into $BIN: Kubernetes, etcd, CoreDNS, kind, the part of crictl that kind calls, the KubeRay operator.
# 7.5 minutes on two cores with empty caches of Go, 0.5 to 2 with warm ones.
set -euo pipefail
export CGO_ENABLED=0
mkdir -p "$BIN" "$KIND_HOME/src"
log=$KIND_HOME/log/modules.log

module() { # NAME "REQUIRE VERSION": a module of its own below src/
    rm -rf "${KIND_HOME:?}/src/$1"
    mkdir -p "$KIND_HOME/src/$1"
    cd "$KIND_HOME/src/$1"
    printf 'module %s\n\ngo 1.26.0\n\nrequire %s\n' "$1" "$2" >go.mod
}
tools() { # PACKAGE...: what `go mod tidy` is to keep
    printf '//go:build tools\n\npackage tools\n\nimport (\n'
    printf '\t_ "%s"\n' "$@"
    printf ')\n'
}
tidy() { go mod tidy >>"$log" 2>&1 || { tail -n 20 "$log" && exit 1; }; }

module kubernetes "k8s.io/kubernetes $KUBERNETES"
# k8s.io/kubernetes replaces its staging modules by folders: pin each to the release that it belongs to
mod=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | jq -r .GoMod)
{
    printf '\nreplace (\n'
    grep -oE 'k8s\.io/[a-z0-9-]+ => \./staging' "$mod" | sort -u |
        sed -E "s#^(k8s.io/[a-z0-9-]+) .*#\t\1 => \1 v0.${KUBERNETES#v1.}#"
    printf ')\n'
} >>go.mod
commands=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl kubeadm)
tools "${commands[@]/#/k8s.io/kubernetes/cmd/}" >tools.go
mkdir crictl
cp "$HERE/modules/crictl.go" crictl/main.go
tidy
version=k8s.io/component-base/version
minor=${KUBERNETES#v1.}
flags="-s -w -X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"
for command in "${commands[@]}"; do
    go build -o "$BIN/" -ldflags "$flags" "k8s.io/kubernetes/cmd/$command"
    echo "built $command"
done
go build -o "$BIN/crictl" -ldflags "-s -w" ./crictl

for name in etcd coredns; do
    case $name in
    etcd) module etcd "go.etcd.io/etcd/server/v3 $ETCD" ;;
    coredns) module coredns "github.com/coredns/coredns $COREDNS" ;;
    esac
    cp "$HERE/modules/$name.go" main.go
    tidy
    go build -o "$BIN/$name" -ldflags "-s -w" .
    echo "built $name"
done

operator=github.com/ray-project/kuberay/ray-operator
module kuberay "$operator $KUBERAY"
tools $operator >tools.go
tidy
go build -o "$BIN/ray-operator" -ldflags "-s -w" $operator
# the CRDs, the rights and the Deployment of that release
rm -rf "$KIND_HOME/kuberay"
cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' $operator)/config" "$KIND_HOME/kuberay"
echo "built ray-operator"

GOBIN=$BIN go install "sigs.k8s.io/kind@$KIND"
rm -rf "$KIND_HOME/kind-base"
cp -r --no-preserve=mode,ownership "$(go env GOMODCACHE)/sigs.k8s.io/kind@$KIND/images/base/files" "$KIND_HOME/kind-base"
echo "built kind"
