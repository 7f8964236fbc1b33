#!/bin/sh
# Holds one container: its mounts, which nobody else sees, and its processes. Both end when descriptor 5 closes, which
# happens even when the owner is killed, so that nothing can be left behind.
#
#   container.sh start   FOLDER ROOTFS DISK RUN -- COMMAND…
#   container.sh restore FOLDER ROOTFS DISK RUN IMAGE -- CRIU ARGUMENT…
#
# COMMAND is process 1 of the new container. ROOTFS may be several folders, upper:lower. DISK limits what it writes. RUN
# is a tmpfs folder that criu keeps its notes in. FOLDER gets `pid`, of process 1, once it runs. Ends with the container:
# FOLDER then says why in container.log, unless the owner had it ended, which removes FOLDER.
# The container's network namespace is this shell's own; descriptor 6 is the same, for criu.
# CAIRN_OWNER is the owner's mark, and CAIRN_GROUPS the folders of the control groups that the container is to join.
set -eu
PATH=$PATH:/usr/sbin:/sbin # not everybody's path has them
trap '' HUP INT TERM
mode=$1 folder=$2 rootfs=$3 disk=$4 run=$5
shift 5
image=
[ "$mode" = restore ] && { image=$1; shift; }
shift

# By their source, whoever cleans up knows these mounts and all that lives on them
mount --make-rprivate /
mount -t tmpfs -o "size=$disk,nr_inodes=100k,mode=755" "cairn-$CAIRN_OWNER" "$folder/disk"
mkdir "$folder/disk/work"
if [ -n "$image" ]; then cp -a "$image/files" "$folder/disk/files"; else mkdir "$folder/disk/files"; fi
mount --bind "$run" /run
mount -t overlay -o "lowerdir=$rootfs,upperdir=$folder/disk/files,workdir=$folder/disk/work,index=off" \
    "cairn-$CAIRN_OWNER" "$folder/root"

join() { # as a member of the container's groups, run a command in this process's place
    for group in $CAIRN_GROUPS; do echo 0 >"$group/cgroup.procs"; done
    exec "$@"
}

if [ "$mode" = start ]; then
    join unshare --mount --pid --ipc --uts --fork --kill-child sh -c '
        set -eu
        read -r pid _ </proc/self/stat # seen from outside, as long as this is the /proc of outside
        echo "$pid" >"$2/pid.new"
        mv "$2/pid.new" "$2/pid"
        mount --make-rprivate /
        cd "$1"
        mount --bind . .
        cd "$1"
        pivot_root . old
        shift 2
        mount -t proc -o ro,nosuid,nodev,noexec proc /proc
        umount -l /old
        exec env -i PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 LANGUAGE=en_US TZ=UTC \
            "$@" </dev/null >/tmp/agent.log 2>&1 5<&- 6<&-
    ' container "$folder/root" "$folder" "$@" </dev/null 5<&- 6<&- &
else
    # A connection's data that was not sent is sent while criu restores it, to a peer that may not be there yet and would
    # reset it. So nothing passes until hook.sh says so; TCP sends it again.
    tc qdisc add dev lo root pfifo limit 0 2>/dev/null || :
    # stays as the parent of process 1, and collects it when it ends
    export CAIRN_FOLDER="$folder"
    join "$@" </dev/null 5<&- &
fi
holder=$!

strangers() { # whoever shares this network, which is the container's alone, but not this shell's mounts
    find /proc/[0-9]*/ns/net -lname "$(readlink /proc/self/ns/net | sed 's/[][]/\\&/g')" 2>/dev/null | cut -d / -f 3 |
        while read -r member; do
            [ "$(readlink "/proc/$member/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] || echo "$member"
        done
}

finish() { # kill whatever lives of the container, first of all what could start more
    for group in $CAIRN_GROUPS; do
        { echo 0 >"$group/pids.max"; } 2>/dev/null || :
        while read -r member; do kill -KILL "$member" || :; done <"$group/cgroup.procs" || :
    done 2>/dev/null
    [ -n "$CAIRN_GROUPS" ] || kill -KILL $(strangers) 2>/dev/null || :
    { read -r _ _ _ parent _ <"/proc/$holder/stat"; } 2>/dev/null || parent=
    # once it has been collected, its number may be another's
    [ "$parent" != $$ ] || kill -KILL "$holder" 2>/dev/null || :
}

{
    read -r _ <&5 || :
    { echo >"$folder/unwanted"; } 2>/dev/null || :
    finish
} &
watcher=$!

wait $holder || :
finish # where criu was killed, what it had begun to restore lives
kill -KILL $watcher 2>/dev/null || :
if [ -e "$folder/pid" ]; then cat "$folder/disk/files/tmp/agent.log"; else sed -n '/Error/{/rlimit/!p}' \
    "$folder/restore.log"; fi 2>/dev/null | tail -c 400 >>"$folder/container.log" || :
umount -l "$folder/root" "$folder/disk" || :
for left in $CAIRN_GROUPS; do # once nobody is in it
    tries=0
    while [ -d "$left" ] && ! rmdir "$left" 2>/dev/null && [ $tries -lt 500 ]; do
        finish
        sleep 0.02
        tries=$((tries + 1))
    done
done
[ -e "$folder/unwanted" ] && rm -rf "$folder"
exit 0
