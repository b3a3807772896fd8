package simulator

// Models of GPUs, as GPU Feature Discovery names them, for NodeSpec.Model.
const (
	ModelH100 = "NVIDIA-H100-80GB-HBM3"
	ModelA100 = "NVIDIA-A100-SXM4-80GB"
	ModelT4   = "Tesla-T4"
	// ModelSmallA100 has half the memory of ModelA100.
	ModelSmallA100 = "NVIDIA-A100-SXM4-40GB"
)

// gpuModel is what the driver reports of a model of GPU.
type gpuModel struct {
	// memory is in MiB; compute is the major and minor compute capability.
	memory  int
	family  string
	compute [2]string
	// profiles are the MIG devices that fit on one GPU, by their names; none: it does not support MIG.
	profiles map[string]migProfile
}

// migProfile is one kind of MIG device.
type migProfile struct {
	// compute and memory are how many of the seven compute and eight memory slices of a GPU it takes.
	compute, memory int
	// mebibytes is its memory. media: it has all media engines, so that only one fits on a GPU.
	mebibytes int
	media     bool
}

// Slices of a GPU that supports MIG.
const (
	computeSlices = 7
	memorySlices  = 8
)

// profiles80GB are those of a GPU with seven compute slices and 80 GB.
var profiles80GB = map[string]migProfile{
	"1g.10gb":    {compute: 1, memory: 1, mebibytes: 9728},
	"1g.10gb+me": {compute: 1, memory: 1, mebibytes: 9728, media: true},
	"1g.20gb":    {compute: 1, memory: 2, mebibytes: 19968},
	"2g.20gb":    {compute: 2, memory: 2, mebibytes: 19968},
	"3g.40gb":    {compute: 3, memory: 4, mebibytes: 40192},
	"4g.40gb":    {compute: 4, memory: 4, mebibytes: 40192},
	"7g.80gb":    {compute: 7, memory: 8, mebibytes: 81152},
}

// profiles40GB are those of a GPU with seven compute slices and 40 GB.
var profiles40GB = map[string]migProfile{
	"1g.5gb":  {compute: 1, memory: 1, mebibytes: 4864},
	"2g.10gb": {compute: 2, memory: 2, mebibytes: 9856},
	"3g.20gb": {compute: 3, memory: 4, mebibytes: 20096},
	"4g.20gb": {compute: 4, memory: 4, mebibytes: 20096},
	"7g.40gb": {compute: 7, memory: 8, mebibytes: 40192},
}

var models = map[string]gpuModel{
	ModelH100:      {memory: 81559, family: "hopper", compute: [2]string{"9", "0"}, profiles: profiles80GB},
	ModelA100:      {memory: 81920, family: "ampere", compute: [2]string{"8", "0"}, profiles: profiles80GB},
	ModelSmallA100: {memory: 40960, family: "ampere", compute: [2]string{"8", "0"}, profiles: profiles40GB},
	ModelT4:        {memory: 15360, family: "turing", compute: [2]string{"7", "5"}},
}

// fit returns how many devices of a profile fit on one GPU.
func (m gpuModel) fit(name string) int {
	profile := m.profiles[name]
	if profile.media {
		return 1
	}
	return min(computeSlices/profile.compute, memorySlices/profile.memory)
}

// supports reports whether one GPU can be partitioned into these devices.
func (m gpuModel) supports(devices map[string]int) bool {
	compute, memory, media := 0, 0, 0
	for name, count := range devices {
		profile, known := m.profiles[name]
		if !known {
			return false
		}
		compute, memory = compute+count*profile.compute, memory+count*profile.memory
		if profile.media {
			media += count
		}
	}
	return compute <= computeSlices && memory <= memorySlices && media <= 1
}
