// Package configfile checks files of users that programs of the stack read, as those programs read them: the layouts
// and the clients of the MIG manager, and the parameters of kernel modules. It is pure.
package configfile
