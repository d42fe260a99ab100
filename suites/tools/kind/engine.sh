#!/bin/bash
# engine.sh up|down: the container engine that DOCKER_HOST names, or else a dockerd of our own below $KIND_HOME, and the network
# $NETWORK for the nodes with a guard: nothing that is forwarded from it leaves the machine, whatever kube-proxy does.
# Our own dockerd leaves the machine's firewall and its forwarding as they are. What is changed of the machine besides is how
# many users of inotify there may be: with 128 the kube-proxy of a second cluster finds "too many open files", and service
# traffic goes astray. `down` sets it to what it was.
set -euo pipefail
pidfile=$KIND_HOME/dockerd.pid
inside=(-i "$BRIDGE" -o "$BRIDGE" -j ACCEPT)
guard=(-i "$BRIDGE" ! -o "$BRIDGE" -m conntrack --ctstate NEW -j REJECT)

inotify=/proc/sys/fs/inotify/max_user_instances
inotify_found=$KIND_HOME/inotify-instances

answers() { docker version >/dev/null 2>&1; }
until_() { # SECONDS WHAT COMMAND...
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "$what: not within its time" && return 1; }
        sleep 0.2
    done
}
start() {
    local runtime=()
    # bit 24: "docker run --privileged" asks for CAP_SYS_RESOURCE, which this machine may not have
    if (((0x$(sed -n 's/^CapEff:\t//p' /proc/self/status) >> 24 & 1) == 0)); then
        runtime=(--add-runtime "nores=$HERE/runc-nores" --default-runtime nores)
    fi
    setsid nohup dockerd --host "$DOCKER_HOST" --data-root "$KIND_HOME/docker" --exec-root "$KIND_HOME/docker-run" \
        --pidfile "$pidfile" --bridge none --iptables=false --ip-forward=false "${runtime[@]}" \
        >"$KIND_HOME/log/dockerd.log" 2>&1 </dev/null &
    until_ 60 "dockerd answers ($KIND_HOME/log/dockerd.log says why not)" answers
}
network_gone() { ! docker network inspect "$NETWORK" >/dev/null 2>&1 || docker network rm "$NETWORK" >/dev/null 2>&1; }
ended() { ! kill -0 "$1" 2>/dev/null; }
unmount_below() { # FOLDER: a dockerd that was killed leaves namespaces mounted there, and each later one mounts its own on top
    awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        while read -r point; do umount "$point"; done
}
rule() { # -I or -D, and the rule: as often as it takes to have it once or not at all
    local how=$1
    shift
    while iptables -w -C FORWARD "$@" 2>/dev/null; do iptables -w -D FORWARD "$@"; done
    [ "$how" = -D ] || iptables -w -I FORWARD "$@"
}

case $1 in
up)
    if [ "$OWN_ENGINE" = 1 ]; then
        answers || start
    fi
    docker network inspect "$NETWORK" >/dev/null 2>&1 ||
        docker network create -d bridge -o com.docker.network.bridge.name="$BRIDGE" "$NETWORK" >/dev/null
    rule -I "${inside[@]}"
    rule -I "${guard[@]}"
    if [ "$(cat $inotify)" -lt 1024 ]; then
        cat $inotify >"$inotify_found"
        echo 1024 >$inotify
    fi
    ;;
down)
    if answers; then
        if [ "$OWN_ENGINE" = 1 ] && [ -x "$BIN/kind" ]; then
            "$BIN/kind" get clusters -q | while read -r name; do "$BIN/kind" delete cluster --name "$name" -q; done
        fi
        # the watchdog of a killed run may still be deleting its cluster; while there is one, the guard stays too
        until_ 40 "the network $NETWORK is without nodes (kind get clusters)" network_gone
    fi
    rule -D "${inside[@]}"
    rule -D "${guard[@]}"
    if [ -f "$inotify_found" ]; then
        cat "$inotify_found" >$inotify
        rm "$inotify_found"
    fi
    if [ "$OWN_ENGINE" = 1 ] && [ -f "$pidfile" ]; then
        pid=$(cat "$pidfile")
        kill "$pid" 2>/dev/null || true
        until_ 40 "dockerd $pid ends" ended "$pid"
        unmount_below "${KIND_HOME:?}/docker-run"
        rm -rf "$pidfile" "${KIND_HOME:?}/docker-run"
    fi
    ;;
esac
