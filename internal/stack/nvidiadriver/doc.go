// Package nvidiadriver converts NVIDIADriver objects into node pools of a ClusterPolicy. It is pure.
package nvidiadriver
