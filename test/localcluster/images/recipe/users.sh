#!/bin/sh
# Runs in the new root before any package but the essential ones is unpacked.
# The Docker Official image gives postgres the ids 999:999, which manifests rely
# on; Debian's package takes an existing user as it is.
set -eu
root=$1

echo 'postgres:x:999:' >>"$root/etc/group"
echo 'postgres:x:999:999::/var/lib/postgresql:/bin/bash' >>"$root/etc/passwd"

# The package would otherwise run initdb.
mkdir -p "$root/etc/postgresql-common/createcluster.d"
echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.d/image.conf"
