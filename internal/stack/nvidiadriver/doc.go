// Package nvidiadriver converts NVIDIADriver objects into node pools of a ClusterPolicy, and back. It is pure.
package nvidiadriver
