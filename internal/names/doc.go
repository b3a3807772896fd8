// Package names has no code; its folders answer what things are called, and what follows from a name or a label alone:
// labels, annotations, taints, paths and markers; the versions of this release, and the minimum safe ones of others'
// components; what the labels of a Node say about its GPUs, its system and its pool; short digests, bounded texts,
// times.
//
// Any program and any package may import them. They import the API types and helpers of apimachinery, and no other
// room.
//
// Begin with package labels: each key has its writers and readers.
package names
