package nodeinfo

// DescribeMissingLabels describes the discovery labels that are missing on a known GPU node; empty if none is. A
// restart of discovery may remove them all and add them again one by one; the operands of the node stay meanwhile.
func (f Facts) DescribeMissingLabels() string {
	const among = " in its discovery labels"
	switch {
	case !f.WasGPU:
		return ""
	case !f.HasDiscoveryLabels:
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
