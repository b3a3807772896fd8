// Package miglog finds the cause of a failed change of the MIG layout in the log of NVIDIA's MIG manager, which reports
// it nowhere else. It is pure.
//
// The log is that of two programs: nvidia-mig-manager, which logs the steps of a change, and nvidia-mig-parted, which
// it runs for each step and which logs the cause. Releases before v0.13 run a shell script between the two, whose lines
// have no level.
package miglog
