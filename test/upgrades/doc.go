// Package upgrades tests driver upgrades on a real control plane with simulated GPU nodes, which keep a loaded driver
// and refuse to unload one that is in use. A watcher that shares no code with the operator reads every version of every
// node and pod, and judges budget, cordons and validation by them; the API server's audit log counts the writes.
package upgrades
