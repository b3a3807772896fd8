package config

import (
	_ "embed"
	"encoding/base64"
)

// IconType is the media type of the icon.
const IconType = "image/svg+xml"

//go:embed manifests/bases/icon.svg
var icon []byte

// Icon returns the picture of the operator that catalogues and consoles show, in base64.
func Icon() string { return base64.StdEncoding.EncodeToString(icon) }
