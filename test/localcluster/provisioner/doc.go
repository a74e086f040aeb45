// Command provisioner makes the volumes of the local cluster: each is an XFS
// file system of the claimed size in a sparse file on a loop device. So a full
// volume says "no space left on device", growth happens online, and deletion
// frees the space.
//
//	<root>/<pv>.img   the file system's image; its presence means that it is complete
//	<root>/<pv>/      where it is mounted; what the PersistentVolume points to
//
// All nodes of a local cluster share this machine's mounts, hence one process
// serves them all. It keeps no state but these files: mounts outlive it, and
// what is missing after the machine's restart it mounts again.
//
//	claim + selected node --> volumes.Provision --> PersistentVolume   (library)
//	claim deleted         --> volumes.Delete                           (library)
//	claim's request grows --> resizer                                  (resize.go)
package main
