#!/bin/sh
# What criu runs in the middle of its work. CAIRN_FOLDER is the container's, CAIRN_IMAGE the image's, and CAIRN_OUTSIDE
# the list of members of the group that the owner's memory counts in.
PATH=$PATH:/usr/sbin:/sbin # not everybody's path has them
case "$CRTOOLS_SCRIPT_ACTION" in
# criu has noted by now which group it is in; what it writes is not to count as the container's memory
network-lock) { echo "$PPID" >"$CAIRN_OUTSIDE"; } 2>/dev/null || : ;;
# of a restored container, which criu is in the network of; container.sh has closed it
network-unlock) [ -n "${CAIRN_IMAGE:-}" ] || tc qdisc del dev lo root 2>/dev/null || : ;;
# while the container is frozen: its files belong to the image as much as its memory does
post-dump) exec cp -a "$CAIRN_FOLDER/disk/files" "$CAIRN_IMAGE/files" ;;
# criu holds nothing of the container any more
post-resume) exec mv "$CAIRN_FOLDER/pid.new" "$CAIRN_FOLDER/pid" ;;
esac
exit 0
