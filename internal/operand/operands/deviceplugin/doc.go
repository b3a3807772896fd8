// Package deviceplugin is the operand that advertises GPUs to the kubelet.
package deviceplugin
