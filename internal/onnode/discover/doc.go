// Package discover labels the node with what it is made of: its GPUs, its kernel, its operating system,
// and what GPU Feature Discovery found out about the GPUs. The keys and the form of the values are those
// of Node Feature Discovery (NFD), so that every reader of NFD's labels can read these.
//
// # What is written
//
// Each label is a fact that was read on the node just now, so it replaces another value of the same key,
// whoever wrote that. The annotation labels.Discovered names the labels that discovery has written: its
// own. Only an own label is ever removed, once its fact no longer holds. A label that was there before
// with the right value becomes an own one, since discovery keeps it current from then on.
//
// A fact that cannot be read is not one that does not hold: its label stays as it is. So do the labels
// of GPU Feature Discovery for some minutes when its file is missing, because it removes the file
// whenever it ends. Without a GPU in the node they go at once.
//
// The Node is read when facts change, and from time to time, and written only for a difference. A new
// labels.FeatureTimestamp alone is none: it is written along with the next.
//
// # Beside Node Feature Discovery
//
// NFD lists the labels that it has written in an annotation of the node, from which ModeAuto concludes:
//
//   - A label that NFD lists is NFD's, whatever its value: it is never written, and no longer an own one.
//   - The three labels that tell of a GPU are one thing: if NFD lists one of them, discovery starts none.
//   - Every other fact, of which NFD says nothing, is discovery's as on any node: for example that of a
//     GPU that NFD is not configured to look for, or cannot see (WSL).
//   - An own label that NFD does not list stays an own one.
//
// So each label has one writer, and which one follows from the Node alone, not from what came first: NFD
// can be installed and removed (with its prune job, which removes the list) at any time, and no label
// is lost, or missing for longer than until the next look. An NFD that was removed without its prune job
// leaves its list behind: its labels that no longer tell the truth are named in the log; ModeBuiltin
// takes no notice of the list.
package discover
