// Package termination is how a program in a container ends as the kubelet expects: at SIGTERM, and with its
// termination message.
package termination
