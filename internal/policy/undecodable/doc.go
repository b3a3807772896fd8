// Package undecodable finds objects of the API that Go cannot decode into their types, or not in time, and makes of
// each one that can be decoded, with a mark that names the fields.
//
// The schema of this release refuses such objects, but objects that an older definition, or that of NVIDIA's operator,
// has admitted are still stored. One of them makes a list and a watch fail for all objects of its kind, again and
// again, and a quantity such as 1e-99999999999 keeps its decoder busy for ever, so that no error follows either.
//
// The values are checked in the answers of the API server, before any decoder: a transport below all clients of a
// program is the only place that lists, watches, reads and the answers to writes have in common, as controller-runtime
// makes the decoders of clients and caches itself. A field that cannot be decoded is removed from the object that the
// program sees, and the annotation labels.Undecodable says which, and why. The rest of the object stays as it is, so
// that its readers still know, for example, which nodes it selects. The object in the API server is not changed: the
// operator writes only patches and statuses of these kinds.
//
// What can be decoded follows from the Go types alone, so that no field can be forgotten.
package undecodable
