// Package statuswriter is the only writer of the status of policies and NVIDIADriver objects. It limits how often a
// status is written, by how significant the change is, and records the Events about a policy. It is the end of a pass,
// and does not compute the status: package status does.
package statuswriter
