#!/bin/sh
# Holds one container: its mounts, which nobody else sees, and its processes. Both end when descriptor 5 closes, which
# happens even when the owner is killed, so that nothing can be left behind.
#
#   container.sh start   FOLDER ROOTFS DISK RUN -- COMMAND…
#   container.sh restore FOLDER ROOTFS DISK RUN IMAGE -- CRIU ARGUMENT…
#
# COMMAND is process 1 of the new container. ROOTFS may be several folders, upper:lower. DISK limits what it writes. RUN
# is a tmpfs folder that criu keeps its notes in. FOLDER gets `pid`, of process 1, once it runs.
# The container's network namespace is this shell's own; descriptor 6 is the same, for criu.
set -eu
trap '' HUP INT TERM
mode=$1 folder=$2 rootfs=$3 disk=$4 run=$5
shift 5
image=
[ "$mode" = restore ] && { image=$1; shift; }
shift

mount --make-rprivate /
mount -t tmpfs -o "size=$disk,mode=755" cairn-container "$folder/disk"
mkdir "$folder/disk/work"
if [ -n "$image" ]; then cp -a "$image/files" "$folder/disk/files"; else mkdir "$folder/disk/files"; fi
mount --bind "$run" /run
mount -t overlay -o "lowerdir=$rootfs,upperdir=$folder/disk/files,workdir=$folder/disk/work,index=off" \
    overlay "$folder/root"

if [ "$mode" = start ]; then
    unshare --mount --pid --ipc --uts --fork --kill-child sh -c '
        set -eu
        mount --make-rprivate /
        cd "$1"
        mount --bind . .
        cd "$1"
        pivot_root . old
        shift
        mount -t proc -o ro,nosuid,nodev,noexec proc /proc
        umount -l /old
        exec env -i PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 LANGUAGE=en_US TZ=UTC \
            "$@" </dev/null >/tmp/agent.log 2>&1 5<&- 6<&-
    ' container "$folder/root" "$@" </dev/null 5<&- 6<&- &
    holder=$!
    pid=
    while [ -z "$pid" ]; do
        kill -0 $holder || exit 1
        read -r pid _ <"/proc/$holder/task/$holder/children" || : # the list ends without a line break
    done
    echo "$pid" >"$folder/pid.new"
    mv "$folder/pid.new" "$folder/pid"
else
    "$@" </dev/null 5<&- & # writes pid; stays as the parent of process 1, and collects it when it ends
    holder=$!
    while ! [ -s "$folder/pid" ]; do
        kill -0 $holder 2>/dev/null || exit 1
        sleep 0.002
    done
    read -r pid <"$folder/pid" || :
fi
read -r _ <&5 || :
kill -KILL "$pid" 2>/dev/null || :
[ "$mode" = restore ] || kill -KILL $holder 2>/dev/null || :
wait $holder || :
umount -l "$folder/root" "$folder/disk"
rm -rf "$folder"
