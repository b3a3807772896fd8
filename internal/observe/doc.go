// Package observe reads the cluster once per pass, from the caches, into a Snapshot that nobody
// changes. The objects in it are shared with the caches.
package observe
