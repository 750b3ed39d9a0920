#!/bin/bash
# Run by the Dockerfile: copies into a folder what the image contains beside sidegate: Node, Bash, and the libraries of these two and of the
# native addons that follow as arguments. It has no package manager and no npm. The sidecar's preStop hook runs in Bash
# (src/kubernetes/injector/sidecar.ts).
set -euo pipefail
root=$1
addons=("${@:2}")
programs=(/usr/local/bin/node /usr/bin/bash)

mkdir -p "$root"/{etc/ssl/certs,tmp,usr/bin,usr/lib,usr/lib64,usr/local/bin,usr/share/doc,var/lib/dpkg/status.d}
chmod 1777 "$root/tmp"
# As in Debian, where these are links.
for name in bin lib lib64; do ln -s "usr/$name" "$root/$name"; done

# A name that ldd prints is one that the loader looks for.
mapfile -t libraries < <(ldd "${programs[@]}" "${addons[@]}" | sed -nE 's#^\s+(\S+ => )?(/\S+) \(0x.*#\2#p' | sort -u)
for file in "${programs[@]}" "${libraries[@]}"; do
  mkdir -p "$root$(dirname "$file")"
  cp --dereference "$file" "$root$file"
done
# Symbols for debuggers are a fifth of Node. What addons and stack traces need is in another table, which stays.
strip "$root/usr/local/bin/node"

cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp --dereference /etc/os-release "$root/etc/"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' > "$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' > "$root/etc/group"

# Scanners read the versions of Debian's packages here.
{
  echo ca-certificates
  realpath /usr/bin/bash "${libraries[@]}" | xargs dpkg-query --search | cut -d: -f1
} | sort -u | while read -r name; do
  dpkg-query --status "$name" > "$root/var/lib/dpkg/status.d/$name"
  mkdir -p "$root/usr/share/doc/$name"
  cp --dereference "/usr/share/doc/$name/copyright" "$root/usr/share/doc/$name/"
done
cp /usr/local/LICENSE "$root/usr/share/doc/node-LICENSE"
