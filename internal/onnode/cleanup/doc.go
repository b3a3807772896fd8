// Package cleanup removes what the stack has left on the host of a node, once no pod of the stack is there any more.
//
// list.go is the list of all that the stack makes on a host: what it is, and who makes it. Nothing else is removed.
// An entry names each file, or a pattern of names in a directory of the stack; directories go last, and only if they
// are empty. Directories that other software uses too also stay while a process has them mounted: a container would
// lose a directory that it has mounted.
//
// What stays is reported with its reason:
//
//   - a mount point, a socket that is served, a lock that is held: in use;
//   - the toolkit's programs, while a container was created with them (it could not be stopped without them) or the
//     container runtime uses them for all containers; a runtime that still does so, although its configuration does not
//     say so any more, gets SIGHUP to reload it;
//   - a file with a name of the list that is not what the list says, and a directory with files that are not listed.
//
// No symbolic link is followed, with one exception: the directories of the operating system above those of the stack
// (/var/run and /usr/local are links on many hosts) are looked up as the host would, within its root. Entries are
// opened and removed relative to open directories, so a link that is put in place meanwhile is not followed either.
//
// A second run removes nothing. Kernel modules are reported, never unloaded: the driver's own container does that
// where they are idle.
//
// host.go opens directories of the host, walk.go finds the entries of the list and removes them, mounts.go finds what
// is mounted, runtimes.go is about the container runtime's configuration and containers, reload.go about the runtime
// itself, modules.go about kernel modules, and report.go has the result.
package cleanup
