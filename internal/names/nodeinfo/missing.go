package nodeinfo

// DescribeMissingLabels describes the discovery labels that are missing on a known GPU node; empty if none is. A
// restart of discovery may remove them all and add them again one by one; the operands of the node stay meanwhile.
func (f Facts) DescribeMissingLabels() string {
	const show = "discovery labels show "
	switch {
	case !f.WasGPU:
		return ""
	case !f.HasDiscoveryLabels:
		return "no discovery labels"
	case !f.HasGPU:
		return show + "no GPU"
	case f.Pool != "" && f.OSTag() == "":
		return show + "no operating system"
	case f.PoolKernel != "" && f.Kernel == "":
		return show + "no kernel"
	case f.PoolCoreOS != "" && f.OSTree == "":
		return show + "no release of Red Hat CoreOS"
	}
	return ""
}
