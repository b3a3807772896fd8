package manifest

// Exported for tests.
var (
	DecodeContainer = decodeContainer
	AddVolumes      = addVolumes
)
