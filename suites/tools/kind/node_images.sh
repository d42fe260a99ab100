#!/bin/bash
# Puts kubeadm's images, made of our static programs, into $NODE_ROOT/var/lib/containerd (namespace k8s.io), as kind's own node
# images have them. Takes the engine to write image archives, and the host's containerd and ctr to read them.
set -euo pipefail
tmp=$(mktemp -d -p "$KIND_HOME")
pid=
made=()
end() {
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    [ ${#made[@]} -eq 0 ] || docker rmi "${made[@]}" >/dev/null 2>&1 || true
    rm -rf "$tmp"
}
trap end EXIT

path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
image() { # NAME FOLDER [ENTRYPOINT]
    local entry=()
    [ $# -lt 3 ] || entry=(--change "ENTRYPOINT [\"$3\"]")
    tar -C "$2" -c . | docker import --change "ENV PATH=$path" "${entry[@]}" - "$1" >/dev/null
    made+=("$1")
}
program() { # NAME
    mkdir -p "$tmp/$1/usr/local/bin" "$tmp/$1/tmp"
    cp "$BIN/$1" "$tmp/$1/usr/local/bin/$1"
}
with_iptables() { # FOLDER: Debian's, with every library that it and its extensions (libm!) link
    local root=$1 libraries file suffix
    mkdir -p "$root/usr/sbin"
    for file in iptables ip6tables; do
        for suffix in "" -save -restore; do ln -s xtables-nft-multi "$root/usr/sbin/$file$suffix"; done
    done
    (cd "$NODE_ROOT" && cp --parents usr/sbin/xtables-nft-multi usr/lib/x86_64-linux-gnu/xtables/*.so "$root/")
    libraries=$(chroot "$NODE_ROOT" sh -c 'ldd /usr/sbin/xtables-nft-multi /usr/lib/x86_64-linux-gnu/xtables/*.so' |
        grep -o '/lib[^ ]*so[.0-9]*' | sort -u)
    for file in $libraries; do
        mkdir -p "$root/$(dirname "$file")"
        cp -L "$NODE_ROOT$file" "$root$file"
    done
    # a kube-proxy that cannot write its rules lets service traffic out of the machine: look at every extension that it uses
    for file in statistic recent comment conntrack addrtype mark multiport set; do
        chroot "$root" /usr/sbin/iptables -m $file -h >/dev/null || { echo "kube-proxy's iptables lacks $file" && exit 1; }
    done
}

sandbox=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$NODE_ROOT"/etc/containerd/config.toml)
for name in $("$BIN"/kubeadm config images list --kubernetes-version "$KUBERNETES"); do
    part=$(basename "${name%%:*}")
    case $part in
    pause)
        mkdir "$tmp/pause"
        gcc -static -O2 -o "$tmp/pause/pause" "$HERE/modules/pause.c"
        image "$name" "$tmp/pause" /pause
        image "$sandbox" "$tmp/pause" /pause
        ;;
    coredns)
        program coredns
        image "$name" "$tmp/coredns" /usr/local/bin/coredns
        ;;
    *)
        program "$part"
        [ "$part" != kube-proxy ] || with_iptables "$tmp/$part"
        image "$name" "$tmp/$part"
        ;;
    esac
done
docker save -o "$tmp/all.tar" "${made[@]}"
rm -rf "$NODE_ROOT"/var/lib/containerd
mkdir -p "$NODE_ROOT"/var/lib/containerd
cat >"$tmp/containerd.toml" <<T
version = 2
root = "$NODE_ROOT/var/lib/containerd"
state = "$tmp/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$tmp/containerd.sock"
T
containerd -c "$tmp/containerd.toml" >"$KIND_HOME/log/containerd.log" 2>&1 &
pid=$!
for _ in $(seq 100); do
    ctr -a "$tmp/containerd.sock" version >/dev/null 2>&1 && break
    sleep 0.2
done
ctr -a "$tmp/containerd.sock" -n k8s.io images import --no-unpack "$tmp/all.tar"
