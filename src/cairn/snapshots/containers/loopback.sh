#!/bin/sh
# A hook that a runtime runs, with the container's state as JSON, once there are namespaces: the loopback interface comes
# up, which not every runtime does before criu restores the connections over it.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
pid=$(sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p')
exec nsenter -t "$pid" --net -- ip link set lo up
