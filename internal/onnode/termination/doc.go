// Package termination is how a program in a container ends as the kubelet expects: at SIGTERM, and with the reason of a
// failure in its termination message.
package termination
