#!/bin/bash
# Builds the kind node image $NODE_IMAGE: Debian with systemd and containerd, kind's own files, and in containerd's store
# kubeadm's images, made of our static programs. 1 to 4 minutes.
set -euo pipefail
packages=systemd,systemd-sysv,dbus,containerd,runc,containernetworking-plugins,iptables,nftables,iproute2,iputils-ping
packages+=,conntrack,ethtool,socat,kmod,jq,curl,ca-certificates,util-linux,mount,procps,hostname,libseccomp2
if [ ! -d "$NODE_ROOT" ]; then
    rm -rf "$NODE_ROOT.new"
    debootstrap --variant=minbase --include=$packages "$SUITE" "$NODE_ROOT.new" >"$KIND_HOME/log/node-debootstrap.log"
    mv "$NODE_ROOT.new" "$NODE_ROOT"
fi
"$HERE/node_files.sh"
"$HERE/node_images.sh"
tar -C "$NODE_ROOT" --numeric-owner -c . | docker import - shaketable/kind-rootfs >/dev/null
# "docker import" knows no STOPSIGNAL
DOCKER_BUILDKIT=0 docker build -q -t "$NODE_IMAGE" --label "$KEY_LABEL=$KEY" - <<'D'
FROM shaketable/kind-rootfs
ENV container=docker PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
D
docker rmi shaketable/kind-rootfs >/dev/null
