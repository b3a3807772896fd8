// Package kube has no code; its folders answer how this operator uses the API of Kubernetes, without any object of its
// own: Events, requeues, watches of kinds that may be absent, leadership, access to metrics, bounded servers, the
// difference of two objects, versions and schemas of objects, YAML trees, the rules for pods, and how credentials are
// removed from what leaves a cluster.
//
// Every room but names may import them. They import names alone.
//
// Begin with package drift for the comparison of objects, and with package requeue for what wakes a controller. No
// package here counts failures: package apply has the back-off of objects, and each controller that of its own calls.
package kube
