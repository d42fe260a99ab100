#!/bin/bash
# Makes the root file system of a kind node in $NODE_ROOT out of a debootstrap one: kind's own files, the Kubernetes programs, the
# CNI plugins, our pod network.
set -euo pipefail
cp -r "$KIND_HOME"/kind-base/* "$NODE_ROOT"/
chmod 755 "$NODE_ROOT"/usr/local/bin/* "$NODE_ROOT"/kind "$NODE_ROOT"/kind/bin/*
# systemd in a container: only what kind's own Dockerfile leaves
units=$NODE_ROOT/lib/systemd/system
rm -f "$units"/{multi-user,local-fs,basic}.target.wants/* "$NODE_ROOT"/etc/systemd/system/*.wants/* \
    "$units"/sockets.target.wants/*{udev,initctl}* "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service
grep -q ReadKMsg=no "$NODE_ROOT"/etc/systemd/journald.conf || echo ReadKMsg=no >>"$NODE_ROOT"/etc/systemd/journald.conf
chroot "$NODE_ROOT" systemctl enable kubelet.service containerd.service undo-mount-hacks.service
chroot "$NODE_ROOT" systemctl mask systemd-binfmt.service
mkdir -p "$NODE_ROOT"/etc/kubernetes/manifests "$NODE_ROOT"/opt/cni/bin "$NODE_ROOT"/kind/manifests "$NODE_ROOT"/lib/modules
# containerd: Debian's. Where CAP_SYS_RESOURCE is lacking there is no negative oom_score_adj
for program in containerd ctr containerd-shim-runc-v2; do ln -sf /usr/bin/$program "$NODE_ROOT"/usr/local/bin/$program; done
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$NODE_ROOT"/etc/containerd/config.toml
ctr oci spec | jq 'del(.process.rlimits) | .hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}]' \
    >"$NODE_ROOT"/etc/containerd/cri-base.json
for plugin in host-local loopback ptp portmap bridge; do ln -f "$NODE_ROOT"/usr/lib/cni/$plugin "$NODE_ROOT"/opt/cni/bin/$plugin; done
# Kubernetes
cp "$BIN"/{kubelet,kubectl,kubeadm} "$NODE_ROOT"/usr/bin/
cp "$BIN"/crictl "$NODE_ROOT"/usr/local/bin/
echo "$KUBERNETES" >"$NODE_ROOT"/kind/version
# the image of podnet's pods: the one that containerd has for every pod anyway
pause=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$NODE_ROOT"/etc/containerd/config.toml)
sed "s#PAUSE_IMAGE#$pause#" "$HERE"/podnet.yaml >"$NODE_ROOT"/kind/manifests/default-cni.yaml
cp "$HERE"/storage.yaml "$NODE_ROOT"/kind/manifests/default-storage.yaml
install -m 755 "$HERE"/podnet.sh "$NODE_ROOT"/kind/bin/podnet.sh
rm -f "$NODE_ROOT"/var/cache/apt/archives/*.deb
rm -rf "$NODE_ROOT"/var/lib/apt/lists/*
