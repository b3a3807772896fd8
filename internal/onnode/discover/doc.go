// Package discover labels the node with its hardware and software: its GPUs, its kernel, its operating system, and
// the labels of GPU Feature Discovery. Keys and values are those of Node Feature Discovery (NFD), so that all
// readers of NFD's labels can read these.
//
// # What is written
//
// Each label is what was just found on the node, so it replaces any other value of the same key. The
// annotation labels.Discovered lists the labels that discovery has written: its own. Only an own label is ever
// removed, once it is no longer found. A label that already had the right value becomes an own one, since
// discovery keeps it current from then on.
//
// What cannot be read keeps its label as it is. The labels of GPU Feature Discovery also stay
// for some minutes when its file is missing, because it removes the file whenever it ends. On a node without a GPU
// they are removed immediately.
//
// The Node is read when findings change, and at each resync, and written only for a difference. A new
// labels.FeatureTimestamp alone is none: it is written with the next difference.
//
// # Together with Node Feature Discovery
//
// NFD lists the labels that it has written in an annotation of the node. From this ModeAuto concludes:
//
//   - A label that NFD lists is NFD's, whatever its value: discovery never writes it, and no longer owns it.
//   - The three labels that show a GPU belong together: if NFD lists one of them, discovery adds none.
//   - All other labels, which NFD does not list, are discovery's as on any node: for example a GPU that NFD is not
//     configured to look for, or cannot see (WSL).
//   - An own label that NFD does not list stays an own one.
//
// So each label has one writer, which follows from the Node alone, not from the order of events: NFD can be
// installed and removed (with its prune job, which removes the list) at any time, and a label that is missing is
// back at the next resync. An NFD that was removed without its prune job leaves its list behind: its labels that
// are stale are logged. ModeBuiltin ignores the list.
package discover
