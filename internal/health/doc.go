// Package health has no code; its folders answer what is done about unhealthy GPUs: package gpuhealth is the format in
// which the agent on a node reports faults, and package healthaction plans taints and cordons. Both are pure.
//
// The agent itself is onnode/health, and package controller/healthaction carries out the plan.
//
// Begin with package healthaction.
package health
