#!/bin/sh
# Holds the namespaces that Podman, its monitors and its containers live in. All of them end when descriptor 5 closes,
# which happens even when the owner is killed, so that nothing can be left behind.
#
#   podman.sh FOLDER ROOTFS GROUP IMAGE -- PODMAN ARGUMENT…
#
# FOLDER has image.tar, of two empty layers, and gets `pid`, of the first process, once Podman can be used there.
# ROOTFS becomes the first layer of IMAGE and FOLDER/layer the second, without a copy of either. GROUP is the control
# group that all of it is in. Paths below /run/cairn are the same for every owner, because they get into saved containers.
set -eu
trap '' HUP INT TERM
folder=$1 rootfs=$2 group=/sys/fs/cgroup/$3 image=$4
shift 5

mount --make-rprivate /
# crun refuses to work where version 1 can be seen beside it
[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 cairn-groups /sys/fs/cgroup
mkdir "$group"
echo "+memory +pids" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || : # where version 2 has them

sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec unshare --cgroup --mount --pid --fork --kill-child "$@"' join "$group" sh -c '
    set -eu
    folder=$1 rootfs=$2 image=$3
    shift 3
    umount -l /sys/fs/cgroup # the same again, with our own group as its root
    mount -t cgroup2 cairn-groups /sys/fs/cgroup
    mkdir /sys/fs/cgroup/keeper
    mount -t proc proc /proc
    mount -t tmpfs -o mode=755 cairn-podman /run
    mkdir -p /run/cairn/storage /run/cairn/hooks
    mount --bind "$folder/storage" /run/cairn/storage
    cp "$folder/criu.conf" /run/cairn/criu.conf
    cp "$folder/hook.json" /run/cairn/hooks/loopback.json
    cp "$folder/loopback.sh" /run/cairn/loopback.sh
    chmod 755 /run/cairn/loopback.sh
    "$@" load --quiet --signature-policy "$folder/policy.json" --input "$folder/image.tar" >/dev/null
    lower=$("$@" image inspect --format "{{.GraphDriver.Data.LowerDir}}" "$image")
    upper=$("$@" image inspect --format "{{.GraphDriver.Data.UpperDir}}" "$image")
    mount --bind "$rootfs" "$lower"
    mount --bind "$folder/layer" "$upper"
    : >"$folder/ready"
    # monitors are orphans with this process as their parent, which collects them by ignoring that they end
    exec env --ignore-signal=HUP,INT,TERM,CHLD cat <&5 >/dev/null
' podman "$folder" "$rootfs" "$image" "$@" </dev/null &
holder=$!
while ! [ -e "$folder/ready" ]; do
    kill -0 $holder 2>/dev/null || break
    sleep 0.005
done
if [ -e "$folder/ready" ]; then
    for member in $(cat "$group/cgroup.procs"); do echo "$member" >"$group/keeper/cgroup.procs"; done
    read -r pid _ <"/proc/$holder/task/$holder/children" || : # the list ends without a line break
    echo "$pid" >"$folder/pid.new"
    mv "$folder/pid.new" "$folder/pid"
    exec 5<&-
fi
wait $holder || :
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
    sleep 0.1
done
rm -rf "$folder"
