#!/bin/sh
# Runs when all packages are installed: the rest of the Docker Official image's
# contract, then what nobody needs at run time.
set -eu
root=$1
test -x "$root/usr/lib/postgresql/$PG_MAJOR/bin/postgres"
test ! -e "$root/etc/postgresql/$PG_MAJOR"

chroot "$root" localedef -i en_US -c -f UTF-8 -A /usr/share/locale/locale.alias en_US.UTF-8

sed -ri "s!^#?(listen_addresses)\s*=\s*\S+.*!\1 = '*'!" \
	"$root/usr/share/postgresql/$PG_MAJOR/postgresql.conf.sample"

install -d -o 999 -g 999 -m 1777 "$root/var/lib/postgresql"
install -d -o 999 -g 999 -m 1777 "$root/var/lib/postgresql/data"
install -d -o 999 -g 999 -m 3777 "$root/run/postgresql"

rm -rf "$root/usr/share/i18n" "$root"/usr/lib/*/perl/*/CORE "$root"/var/cache/debconf/*
rm -f "$root/etc/ssl/private/ssl-cert-snakeoil.key"
# Links to the manual pages that were not unpacked.
find "$root/etc/alternatives" -xtype l -name '*.gz' -delete
