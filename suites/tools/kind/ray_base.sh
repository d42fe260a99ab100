#!/bin/bash
# Builds $RAY_BASE: Debian, the Python that runs this, Ray and all that the project's experiments ask for, compiled: pods run
# as a user who cannot keep what Python compiles. And redis-server, for experiments with a head that outlives its pod.
set -euo pipefail
packages=ca-certificates,libssl3,libffi8,zlib1g,libbz2-1.0,liblzma5,libsqlite3-0,libreadline8,libuuid1,libncursesw6
packages+=,procps,iproute2,wget,redis-server
root=$KIND_HOME/ray-root
if [ ! -d "$root" ]; then
    rm -rf "$root.new"
    debootstrap --variant=minbase --include=$packages "$SUITE" "$root.new" >"$KIND_HOME/log/ray-debootstrap.log"
    rm -f "$root.new"/var/cache/apt/archives/*.deb
    mv "$root.new" "$root"
fi

# Python itself, without what is installed beside it
prefix=$("$PYTHON" -c 'import sys; print(sys.base_prefix)')
version=$("$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
there=$root/opt/python
rm -rf "$there" "$root/opt/venv"
mkdir -p "$there/bin" "$there/lib"
cp "$prefix/bin/$version" "$there/bin/"
tar -C "$prefix/lib" --exclude=site-packages --exclude=dist-packages --exclude=__pycache__ --exclude="$version/test" \
    --exclude='config-*' -c "$version" | tar -C "$there/lib" -x
find "$prefix/lib" -maxdepth 1 -name 'libpython3*' -exec cp -a {} "$there/lib/" \;

# what the checkout asks for, with uv: ten times as fast as pip
IFS=, read -ra wanted <<<"$EXTRAS"
"$UV" venv -q --relocatable --python "$there/bin/$version" "$root/opt/venv"
"$UV" pip compile -q --python "$root/opt/venv/bin/python" "$CHECKOUT/pyproject.toml" -c "$CHECKOUT/constraints.txt" \
    "${wanted[@]/#/--extra=}" -o "$KIND_HOME/requirements.txt"
"$UV" pip install -q --python "$root/opt/venv/bin/python" --link-mode copy -r "$KIND_HOME/requirements.txt"
# as it is called inside
ln -sf "/opt/python/bin/$version" "$root/opt/venv/bin/python"
sed -i 's#^home = .*#home = /opt/python/bin#' "$root/opt/venv/pyvenv.cfg"

# a Python that is linked to its library has the old path of that
echo /opt/python/lib >"$root/etc/ld.so.conf.d/python.conf"
chroot "$root" /sbin/ldconfig
# as whoever pods run as: is each library there that the standard library links?
chroot --userspec=1000:1000 "$root" /opt/venv/bin/python -c 'import bz2, ctypes, lzma, readline, sqlite3, ssl, uuid, zlib'

# some modules are broken on purpose, and then compileall fails
chroot "$root" /opt/venv/bin/python -m compileall -q -j 0 /opt/python/lib /opt/venv/lib >"$KIND_HOME/log/compileall.log" || true
chmod -R a+rX "$root/opt"
tar -C "$root" --numeric-owner -c . | docker import \
    --change 'ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin RAY_USAGE_STATS_ENABLED=0' \
    --change "LABEL $KEY_LABEL=$KEY" - "$RAY_BASE" >/dev/null
