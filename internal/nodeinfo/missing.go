package nodeinfo

// MissingLabels tells which discovery labels are away from a node that was found to have GPUs, in words;
// empty if none. A restart of discovery takes them all, or brings them back one part after the other. What a
// node has of operands stays meanwhile.
func (f Facts) MissingLabels() string {
	const among = " in its discovery labels"
	switch {
	case !f.WasGPU:
		return ""
	case !f.Discovered:
		return "no discovery labels"
	case !f.HasGPU:
		return "no GPU" + among
	case f.Pool != "" && f.OSTag() == "":
		return "no operating system" + among
	case f.PoolKernel != "" && f.Kernel == "":
		return "no kernel" + among
	case f.PoolCoreOS != "" && f.OSTree == "":
		return "no release of Red Hat CoreOS" + among
	}
	return ""
}
