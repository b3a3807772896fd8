package render

// Exported for tests.
var (
	DecodeContainer = decodeContainer
	AddVolumes      = addVolumes
)
