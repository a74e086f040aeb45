// Package images makes the container images of the local cluster without an
// image registry and without a container engine.
//
// Each image is one file that `ctr image import`, `docker load` and `podman
// load` accept. Its layers are not compressed: the file never travels over a
// network, and every node would have to unpack it again.
//
//	program on this machine --BuildBinary--> image with that program only
//	Debian packages --EnsurePostgres--> postgres:<major> --EnsurePostgresUID--> same, other user
//	the same, without security updates --EnsurePostgresEarlier--> an earlier minor version
//
// A file appears under its final name only when it is complete, so whoever sees
// it may trust it.
package images
