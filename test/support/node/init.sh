#!/usr/bin/env bash
# Process 1 of the node. It runs in new namespaces, gives them the file systems, addresses and settings of a separate machine, and then
# waits. Nothing here changes the machine outside, and everything ends with this process.
# Arguments: the node's folder, its cgroup below each hierarchy's root, the version of cgroups, and the hierarchies of version 1.
set -euo pipefail
folder=$1 group=$2 version=$3
shift 3

mount --make-rshared /
mount -t proc proc /proc

# The hierarchies are mounted again, so that the node's cgroup is the root of each. Without the first step, the machine's mounts stay
# visible with the root `/..`, which the kubelet does not accept.
awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts | sort -r | while read -r mounted; do umount "$mounted"; done
if mountpoint -q /sys/fs/cgroup; then umount /sys/fs/cgroup; fi
umount -l /sys
mount -t sysfs sysfs /sys
if [ "$version" = v2 ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  echo $$ > "/sys/fs/cgroup/$group/cgroup.procs"
else
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  for controllers in "$@"; do
    options=$controllers
    if [ "$controllers" = systemd ]; then options=none,name=systemd; fi
    mkdir "/sys/fs/cgroup/$controllers"
    mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$controllers"
    case $controllers in *,*) for each in ${controllers//,/ }; do ln -s "$controllers" "/sys/fs/cgroup/$each"; done ;; esac
    echo $$ > "/sys/fs/cgroup/$controllers/$group/cgroup.procs"
  done
  mount -o remount,ro,mode=755 /sys/fs/cgroup
fi

mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock /run/sysctl
# The kubelet sets these for the whole machine. It writes to copies, which already have the values that it wants.
while read -r name value; do
  copy=/run/sysctl/${name//\//.}
  echo "$value" > "$copy"
  mount --bind "$copy" "/proc/sys/$name"
done <<'END'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

# Programs of the node write below these folders only.
for each in lib log; do
  mkdir -p "$folder/$each"
  mount --bind "$folder/$each" "/var/$each"
done
mkdir -p /var/lib/kubelet /var/lib/containerd /var/lib/cni
mount --make-rshared /

hostname node-1
ip link set lo up
ip link add node0 type veth peer name node0p
ip address add 10.99.0.1/24 dev node0
ip link set node0 up
ip link set node0p up
# Packets to Services need a route before they are rewritten. This one leads nowhere: the namespace has no way out.
ip route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward

touch "$folder/booted"
trap 'exit 0' TERM
while :; do
  sleep 3600 &
  wait $!
done
