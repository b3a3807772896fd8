package render

// What tests call directly.
var (
	DecodeContainer = decodeContainer
	AddVolumes      = addVolumes
)
